"""The suites of libraries of mathematics, sciences, space and signals (suites_table.py)."""

from suites_suite import Suite

SCIENCES = {
    "pytorch_geometric": Suite(
        "test/**/test_*.py",
        theirs={
            "test_gated_graph_conv": "`torch.Tensor(sizes)` makes its weight on the CPU",
            "test_to_nested_tensor": "the device has no nested tensors of layout `torch.strided`",
            "test_total_influence": "it names the CPU",
            "test_edge_index": "what its database returns is on the CPU",
            "test_feature_store": "it compares how a tensor prints",
            "test_prefetch_loader": "it names the CPU",
            "test_performer_attention": "its projection is on the CPU by name",
            "test_lpformer": "its PageRank is Numba's, on the CPU",
            "test_signed_gcn": "its features are scikit-learn's, on the CPU",
        },
        default_device=True,
        tests_a_file=1,
    ),
    "linear_operator": Suite(
        "test/**/test_*.py",
        theirs={
            "TestSolve": "its random matrix is nearly singular with the device's random numbers",
            "test_logdet": "it makes the operator on the CPU and what it expects on the default "
            "device",
            "test_to_helper": "it expects the default device to be the CPU",
            "test_lanczos_tridiag_approx": "`torch.FloatTensor` is the CPU's",
        },
        default_device=True,
        tests_a_file=12,
    ),
    "gpytorch": Suite(
        "test/**/test_*.py",
        theirs={
            "test_kernel_dtype_device": "it expects the default device to be the CPU",
            "TestVNNGP": "gpytorch looks for neighbours on the CPU and CUDA only",
            "TestHalfNormalPrior": "it names the CPU",
        },
        default_device=True,
        tests_a_file=2,
    ),
    "e3nn": Suite(
        "tests/**/*_test.py",
        theirs={
            "test_extract": "`torch.Tensor([…])` makes the expected values on the CPU",
            "test_identity": "its constants are made of a million random numbers, the CPU's for a "
            "module without parameters, else the default device's",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "torchdiffeq": Suite("tests/*_tests.py", default_device=True, tests_a_file=30),
    "torchsde": Suite("tests/test_*.py", default_device=True, tests_a_file=20),
    "pyro": Suite(
        "tests/distributions/test_*.py tests/ops/**/test_*.py", default_device=True, tests_a_file=3
    ),
    "botorch": Suite(
        "test/**/test_*.py",
        constants="botorch.utils.testing.BotorchTestCase.device",
        tests_a_file=1,
    ),
    "MONAI": Suite(
        """tests/losses/**/test_*.py tests/metrics/test_*.py tests/inferers/test_*.py
        tests/networks/**/test_*.py tests/optimizers/test_*.py tests/transforms/**/test_*.py""",
        theirs={
            "ControlNetTestDiffusionSamplingInferer": "its model is on the CPU by name",
            "test_resample_likelihoods": "its data are on the CPU by name",
            "test_invert": "it reads on the device in forked workers of a `DataLoader`",
            "SmoothField": "`torch.device(0)` is the device only with `PJRT_DEVICE`",
        },
        default_device=True,
        tests_a_file=1,
    ),
    "torchjd": Suite(
        "tests/unit/**/test_*.py",
        source="src tests",
        theirs={"test_movedim_yields_psd": "random numbers of the device, to a fixed error"},
        constants="settings.DEVICE",
        tests_a_file=12,
    ),
    "zuko": Suite("tests/test_*.py", default_device=True, tests_a_file=8),
    "nflows": Suite("tests/**/*_test.py", default_device=True, tests_a_file=5),
    "neuraloperator": Suite(
        "neuralop/**/test_*.py", default_device=True, without=("datasets",), tests_a_file=2
    ),
    "snntorch": Suite(
        "tests/**/test_*.py",
        theirs={
            "test_graded_spikes": "`torch.Tensor([…])` makes its data on the CPU",
            "test_target_rate_code": "`torch.Tensor([…])` makes its data on the CPU",
        },
        default_device=True,
        tests_a_file=6,
    ),
    "backpack": Suite("test/**/test_*.py", default_device=True, tests_a_file=4),
    "curvlinops": Suite(
        "test/**/test_*.py",
        theirs={
            "test_kfac_io": "its models are on the CPU by name",
            "test_grad_output_sampler": "its generator is the CPU's",
            "test_kfac_type2": "float32 to 0.00001: another sum",
            "utchinson": "random estimates, which take longer to be near with other numbers",
            "test_xdiag": "random estimates, which take longer to be near with other numbers",
        },
        default_device=True,
        tests_a_file=1,
    ),
    "torchio": Suite(
        "tests/**/test_*.py",
        source="src",
        theirs={
            "test_multichannel_label_sampler": "`torch.Tensor([…])` is the CPU's",
            "test_queue": "PyTorch's `RandomSampler` has a generator of the CPU",
            "test_cli_hd": "it compares how a tensor's type prints",
        },
        default_device=True,
        tests_a_file=1,
    ),
    "Laplace": Suite("tests/test_*.py", default_device=True, tests_a_file=8),
    "auraloss": Suite("tests/test_*.py", default_device=True, tests_a_file=20),
    "speechbrain": Suite(
        "tests/unittests/test_*.py",
        arguments="--device={}",
        theirs={
            "test_streaming": "it compares with tensors of the CPU",
            **dict.fromkeys(
                """SincConv test_softmax test_dropout test_embedding input_normalization test_linear
                gccphat BatchNorm1d pooling1d QPooling2d""".split(),
                "it chooses PyTorch's older executor of scripts, which knows no other devices",
            ),
        },
        tests_a_file=1,
    ),
    "nequip": Suite(
        "tests/unit/**/test_*.py",
        theirs={
            "test_to_ase": "what comes back from ASE is on the CPU",
            "test_epoch_count": "its generator is the CPU's",
            "test_basic": "`torch.LongTensor([…])` makes its data on the CPU",
            "test_insert": "`torch.LongTensor([…])` makes its data on the CPU",
        },
        fixtures="device",
        default_device=True,
        tests_a_file=2,
    ),
    "pytorch-forecasting": Suite("tests/**/test_*.py", default_device=True, tests_a_file=3),
    "geotorch": Suite("test/test_*.py", default_device=True, tests_a_file=4),
    "geoopt": Suite(
        "tests/test_*.py",
        arguments="-W ignore::DeprecationWarning",
        generators=True,
        default_device=True,
        tests_a_file=4,
    ),
    "normalizing-flows": Suite(
        "normflows/**/*_test.py",
        theirs={
            "ResidualTest": "`torch.Tensor(sizes)` makes its weights on the CPU",
        },
        default_device=True,
        tests_a_file=3,
    ),
    "torchcde": Suite("test/test_*.py", default_device=True, tests_a_file=4),
    "tensorly": Suite(
        "tensorly/**/test_*.py",
        environment={"TENSORLY_BACKEND": "pytorch"},
        default_device=True,
        tests_a_file=3,
    ),
    "norse": Suite(
        "norse/torch/**/test_*.py",
        theirs={
            "lif_correlation": "its data are on the CPU by name",
            "nir_import": "NIR's weights are NumPy's, on the CPU",
        },
        default_device=True,
        tests_a_file=2,
    ),
    "PyTorch-Wavelet-Toolbox": Suite(
        "tests/test_*.py", source="src", default_device=True, tests_a_file=5
    ),
    "torchquad": Suite(
        "tests/*_test.py",
        theirs={
            "test_consistency_torch": "it keeps the random state of the CPU or CUDA only",
        },
        default_device=True,
        tests_a_file=5,
    ),
    "torchopt": Suite(
        "tests/test_*.py",
        theirs={
            "test_": "its models are on the CPU by name",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "kymatio": Suite("tests/**/test_*torch*.py", default_device=True, tests_a_file=8),
    "spikingjelly": Suite(
        "test/activation_based/test_*.py",
        theirs={
            "flex_sn": "its generator is the CPU's",
        },
        default_device=True,
        tests_a_file=3,
    ),
    "julius": Suite("tests/test_*.py", default_device=True, tests_a_file=8),
    "lampe": Suite(
        "tests/test_*.py",
        theirs={
            "test_expected_coverage": "what it compares is made on the CPU",
        },
        default_device=True,
        tests_a_file=6,
    ),
    "asteroid": Suite(
        "tests/**/*_test.py tests/**/test_*.py",
        theirs={
            "test_Binarize": "`torch.Tensor(…)` is the CPU's",
            "ebased_vad": "`isinstance(…, torch.BoolTensor)` is the CPU's",
            "test_system": "PyTorch's `RandomSampler` has a generator of the CPU",
            "jitable_shape": "`torch.tensor` in a script is the CPU's",
        },
        default_device=True,
        tests_a_file=3,
    ),
    "torchode": Suite("tests/*_test.py", default_device=True, tests_a_file=100),
    "funsor": Suite(
        "test/test_*.py",
        environment={"FUNSOR_BACKEND": "torch"},
        default_device=True,
        tests_a_file=10,
    ),
    "pypose": Suite(
        "tests/**/test_*.py",
        theirs={
            "test_bsplilne": "its poses are on the CPU by name",
            "test_parameter_dispatch": "its generator is the CPU's",
            "test_epnp": "`torch.Tensor([…])` makes its pose on the CPU",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "theseus": Suite(
        "tests/theseus_tests/**/test_*.py torchlie/tests/test_*.py torchkin/tests/test_*.py",
        source=". torchlie torchkin",
        theirs={
            "test_sparse_mv_cpu": "it tests the CPU by name",
            "inconsistent with objective's": "its objective is on the CPU by name",
        },
        without=("embodied", "nonlinear", "linearization", "dlm_", "pgo_"),
        generators=True,
        default_device=True,
        tests_a_file=4,
    ),
    # without the `__init__.py` of its folder, which hides the package
    "roma": Suite("test/test_*.py", default_device=True, tests_a_file=12),
    "pytorch3d": Suite(
        """rotation_conversions transforms so3 se3 camera_conversions camera_utils struct_utils
        common_linear_with_repeat harmonic_embedding laplacian_matrices acos_linear_extrapolation
        vert_align points_normals""",
        theirs={
            "test_transform_points_eps": "`torch.FloatTensor([…])` is the CPU's",
            "TestTranslate": "pytorch3d makes transforms on the CPU where no device is named",
            "TestScale": "pytorch3d makes transforms on the CPU where no device is named",
        },
        generators=True,
        default_device=True,
        tests_a_file=8,
    ),
    "gluonts": Suite(
        "test/torch/distribution/test_*.py test/torch/modules/test_*.py test/torch/*/test_*.py",
        source="src",
        theirs={
            "test_cdf_quantile_consistency": "`torch.Tensor([…])` is the CPU's",
            "test_values": "`torch.Tensor([…])` is the CPU's",
            "test_neg_binomial": "PyTorch's `RandomSampler` has a generator of the CPU",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "deepchem": Suite(
        """models/tests/layers models/tests/losses models/tests/optimizers
        models/torch_models/tests/chemception_layers models/torch_models/tests/dag_layers
        models/torch_models/tests/flows models/torch_models/tests/grover_layers
        models/torch_models/tests/molgan_layers models/torch_models/tests/hnn
        models/torch_models/tests/readout models/torch_models/tests/rfdiffusion_embeddings
        models/torch_models/tests/rfdiffusion_schedule models/torch_models/tests/spectral_conv
        utils/test/pytorch_utils utils/test/differentiation_utils utils/test/voxel_utils
        utils/test/geometry_utils""",
        tests="deepchem",
        generators=True,
        theirs={
            "test_DAG": "deepchem makes layers on the CPU where no device is named",
            "convolution_layer": "deepchem makes layers on the CPU where no device is named",
            "aggregation_layer": "deepchem makes layers on the CPU where no device is named",
            "encoder_layer": "deepchem makes layers on the CPU where no device is named",
            "testGroverReadout": "`torch.FloatTensor(sizes)` makes its weights on the CPU",
            "testGrover": "its graph is on the CPU by name",
            "test_clampexp": "`torch.Tensor([…])` is the CPU's",
            "test_unsorted_segment_sum": "`torch.Tensor([…])` is the CPU's",
            "test_set_gather": "it multiplies by an array of NumPy, on the CPU",
        },
        default_device=True,
        tests_a_file=6,
    ),
    "sbi": Suite(
        "tests/*_test.py",
        theirs={
            "must match training device 'cpu'": "sbi trains on the CPU where no device is named",
            "test_analysis_modules": "its data are on the CPU by name",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "torchani": Suite("tests/test_*.py", generators=True, default_device=True, tests_a_file=5),
    "pykeen": Suite(
        "tests/**/test_*.py",
        source="src",
        without=("lightning",),  # whose names differ from run to run
        generators=True,
        theirs={
            "(in aten::index_put_": "pykeen works on the CPU where there is no CUDA",
            "test_custom_dataset_path": "its generator is the CPU's",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "torchdyn": Suite(
        "test/**/test_*.py",
        theirs={
            "test_default_run_gallinear": "its model is on the CPU by name",
            "test_adjoint_autograd": "`torch.Tensor([…])` is the CPU's",
            "test_odeint_adjoint": "it makes zeros in autograd's thread, which defaults to the CPU",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "openfold": Suite(
        "tests/test_*.py",
        theirs={
            "test_make_": "`torch.FloatTensor(…)` is the CPU's",
            "TestPermutation": "its rotations are on the CPU by name",
        },
        generators=True,
        default_device=True,
        tests_a_file=6,
    ),
    "torch-audiomentations": Suite(
        "tests/test_*.py", generators=True, default_device=True, tests_a_file=4
    ),
    "azula": Suite("tests/test_*.py", generators=True, default_device=True, tests_a_file=10),
    "schnetpack": Suite(
        "tests/**/test_*.py",
        source="src",
        theirs={
            "cutoff": "`torch.Tensor(…)` is the CPU's",
            "smear_gaussian": "`torch.FloatTensor(…)` is the CPU's",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "pytorch-frame": Suite(
        "test/**/test_*.py",
        theirs={
            "test_row_index": "it names the CPU",
            "test_tensor_frame_basics": "it expects the default device to be the CPU",
        },
        default_device=True,
        tests_a_file=5,
    ),
    "eagerpy": Suite(
        "tests/test_*.py", arguments="--backend=pytorch", default_device=True, tests_a_file=400
    ),
    "autoray": Suite(
        "tests/test_*.py",
        arguments="-k torch",
        generators=True,
        default_device=True,
        tests_a_file=60,
    ),
    # without its conftest.py, which imports JAX and TensorFlow
    "TensorNetwork": Suite(
        "tensornetwork/backends/pytorch/*_test.py", default_device=True, tests_a_file=100
    ),
    # without the folder `ot`, where the installed package, which has C in it, is used
    "POT": Suite(
        "test/test_*.py",
        arguments="-k torch",
        generators=True,
        theirs={
            "test_func_backends": "its table of devices knows the CPU and GPUs only",
            "test_cost_normalization": "it expects `from_numpy` to share memory",
        },
        default_device=True,
        tests_a_file=6,
    ),
    # with an empty `detectron2._C`
    "detectron2": Suite(
        """tests/layers/test_*.py tests/modeling/test_*.py tests/structures/test_*.py
        tests/tracking/test_*.py""",
        without=("roi", "e2e", "rpn", "rcnn", "backbone", "mmdet", "deform"),
        default_device=True,
        tests_a_file=6,
    ),
    "learn2learn": Suite(
        "tests/unit/**/*test*.py", generators=True, default_device=True, tests_a_file=6
    ),
    "d3rlpy": Suite(
        """tests/models/**/test_*.py tests/optimizers/test_*.py tests/preprocessing/test_*.py""",
        theirs={
            "create_vae_decoder": "its data are on the CPU by name",
            "ensemble_continuous_q_function": "its data are on the CPU by name",
            "continuous_iqn_q_function": "its data are on the CPU by name",
            "continuous_qr_q_function": "its data are on the CPU by name",
            "compute_max_with_n_actions": "its data are on the CPU by name",
        },
        default_device=True,
        tests_a_file=2,
    ),
    "ao": Suite(
        "test/quantization/**/test_*.py test/dtypes/test_*.py test/hqq/*.py test/core/*.py",
        without=("x86inductor",),  # it tests the CPU by name
        default_device=True,
        tests_a_file=3,
    ),
    "array-api-tests": Suite(
        "array_api_tests/test_*.py",
        arguments="--disable-deadline --derandomize --max-examples=10",
        environment={"ARRAY_API_TESTS_MODULE": "array_api_compat.torch"},
        theirs={"dlpack": "the device's memory may move and is not lent"},
        default_device=True,
        tests_a_file=400,
    ),
    "pomegranate": Suite("tests/**/test_*.py", default_device=True, tests_a_file=4),
    "pytorch-struct": Suite("tests/test_*.py", default_device=True, tests_a_file=8),
    "torchkbnufft": Suite(
        "tests/test_*.py",
        theirs={"test_nufft_accuracy": "its data come from a file, on the CPU"},
        default_device=True,
        tests_a_file=6,
    ),
    "xitorch": Suite(
        "xitorch/_tests/test_*.py", fixtures="device", default_device=True, tests_a_file=8
    ),
    "FrEIA": Suite("tests/test_*.py", default_device=True, tests_a_file=6),
    "tltorch": Suite(
        "tltorch/**/test_*.py",
        theirs={
            "test_single_conv": "its data are on the CPU by name",
            "test_TuckerTRL": "random weights, to a fixed error that the CPU misses with some",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "TorchDR": Suite(
        "torchdr/tests/test_*.py",
        theirs={
            "test_consistency_sklearn": "it works on the CPU by name",
            "test_NE": "it works on the CPU by name",
        },
        default_device=True,
        tests_a_file=6,
    ),
    "conditional-flow-matching": Suite("tests/test_*.py", default_device=True, tests_a_file=20),
}
