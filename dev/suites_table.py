"""What of other libraries' test suites dev/suites runs, and why tests of theirs fail on xla."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """What of a suite runs on one device without a model hub, and how it is told its device."""

    files: (
        str  # in its folder of tests, without test_ and .py; or a pattern of paths, which has a *
    )
    tests: str = "tests"
    source: str = "."
    arguments: str = ""  # for pytest; "{}" stands for the device
    device: str = "xla"  # what it calls the device
    default_device: bool = False  # whether it uses PyTorch's default device
    without: tuple[str, ...] = ()  # parts of paths that the patterns should not match
    environment: dict[str, str] = field(default_factory=dict)  # "{}" stands for the device
    theirs: dict[str, str] = field(default_factory=dict)  # in names, messages: why they fail
    tests_a_file: int = 10
    fixtures: str = ""  # pytest's, that say "cpu" and are to say the device
    constants: str = ""  # of its modules, that say "cpu" (functions: which devices there are)
    device_types: bool = False  # whether PyTorch makes its tests for each type of device


# A generator that is made without a device is the default device's, as its numbers are.
GENERATORS = {"SUITES_GENERATORS": "1"}
PLAIN_LOADER = "accelerate takes a plain `DataLoader` for its own where the device is XLA"

SUITES = {
    "accelerate": Suite(
        """accelerator optimizer scheduler data_loader utils memory_utils grad_sync modeling_utils
        hooks state_checkpointing metrics big_modeling offload kwargs_handlers dataclasses logging
        compile tracking cpu""",
        source="src",
        theirs={
            "test_can_unwrap_model": "its data are on the CPU; accelerate ignores `cpu=True` "
            "where torch_xla is installed",
            "test_can_pickle_dataloader": PLAIN_LOADER,
            "stateful_dataloader": "accelerate has loaders of its own where the device is XLA",
            "test_skip_first_batches": PLAIN_LOADER,
        },
        tests_a_file=25,
    ),
    "peft": Suite(
        """custom_models initialization tuners_utils low_level_api bufferdict incremental_pca
        integrations lora_variants lorafa loraplus osf other pvera randlora riemannian_lora shira
        trainable_tokens vblora vera mapping mixed lora_conversion lora_intruders""",
        source="src",
        environment={"SUITES_PEFT_DEVICE": "{}"},
    ),
    "transformers": Suite(
        """models/llama/modeling_llama models/bert/modeling_bert models/gpt2/modeling_gpt2
        models/t5/modeling_t5 models/qwen3/modeling_qwen3 models/mixtral/modeling_mixtral
        models/gemma3/modeling_gemma3 models/vit/modeling_vit models/swin/modeling_swin
        models/clip/modeling_clip models/detr/modeling_detr models/segformer/modeling_segformer
        models/whisper/modeling_whisper models/wav2vec2/modeling_wav2vec2
        models/mamba/modeling_mamba models/qwen2_vl/modeling_qwen2_vl
        models/deberta_v2/modeling_deberta_v2 models/longformer/modeling_longformer
        models/bart/modeling_bart models/deepseek_v3/modeling_deepseek_v3""",
        source="src",
        arguments="-k 'not fsdp and not tp_ and not tensor_parallel and not export and not overfit "
        "and not flash and not flex and not pipeline'",
        theirs={
            "eager_matches_sdpa": "half precision to 1e-7 on devices that the test does not know"
        },
        environment={"TRANSFORMERS_TEST_DEVICE": "{}"},
        tests_a_file=10,
    ),
    "pytorch-image-models": Suite(
        "layers layers_drop layers_pool optim scheduler utils task",
        theirs={"pool2d_reset": "`reset` makes its layer on the CPU, where no device is named"},
        environment={"TORCH_DEVICE": "{}"},
    ),
    "diffusers": Suite(
        """schedulers/scheduler_ddim schedulers/scheduler_ddpm schedulers/scheduler_euler
        schedulers/scheduler_euler_ancestral schedulers/scheduler_dpm_multi schedulers/scheduler_lms
        schedulers/scheduler_unipc schedulers/scheduler_heun models/activations models/layers_utils
        models/attention_processor models/unets/models_unet_2d models/unets/models_unet_1d
        models/autoencoders/models_autoencoder_kl models/autoencoders/models_vq
        models/transformers/models_dit_transformer2d models/transformers/models_transformer_sd3
        models/transformers/models_transformer_flux models/transformers/models_transformer_wan""",
        source="src",
        environment={"DIFFUSERS_TEST_DEVICE": "{}"},
        tests_a_file=4,
    ),
    "kornia": Suite(
        "tests/**/test_*.py",
        arguments="--device={}",
        device="tpu",
        without=("onnx", "performance", "download", "benchmark", "test_import", "api_surface"),
        theirs={
            "aten::where.self": "kornia's condition is on the CPU, where it draws its parameters",
            "test_autocast": "kornia asks for autocast of the CPU and CUDA only",
            "test_matches_are_valid_indices": "its table of devices knows the CPU, CUDA and MPS",
            "test_right_jacobian": "random numbers of the device, to a fixed error",
            "test_register_with_shape_mismatch": "its homography is on the CPU",
            "test_dlpack": "memory of an accelerator is not shared with the host",
        },
        tests_a_file=8,
    ),
    "torchmetrics": Suite(
        "tests/unittests/**/test_*.py",
        source="src",
        theirs={"test_perplexity_dtypes_cpu": "it tests the CPU by name"},
        default_device=True,
        tests_a_file=1,
    ),
    "pytorch_geometric": Suite(
        "test/**/test_*.py",
        theirs={
            "test_gated_graph_conv": "`torch.Tensor(sizes)` makes its weight on the CPU",
            "test_to_nested_tensor": "the device has no nested tensors of layout `torch.strided`",
            "test_total_influence": "it names the CPU",
        },
        default_device=True,
        tests_a_file=1,
    ),
    "einops": Suite(
        "einops/tests/test_*.py",
        environment={"EINOPS_TEST_BACKENDS": "numpy,torch"},
        default_device=True,
        tests_a_file=20,
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
    "tensordict": Suite("test/**/test_*.py", default_device=True, tests_a_file=5),
    "captum": Suite(
        "tests/**/test_*.py",
        without=("influence", "concept"),  # they make tensors on the CPU and fork
        theirs={
            "test_matching": "`torch.Tensor([…])` is the CPU's",
            "test_jacobian_loss": "`torch.Tensor([…])` is the CPU's",
            "test_lrp_multi": "`torch.Tensor([…])` is the CPU's",
            "test_validate_input": "it compares how a tensor prints",
            "test_sample_grads": "thousands, to 0.0001: another sum of float32",
        },
        default_device=True,
        tests_a_file=6,
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
    "opacus": Suite(
        "opacus/tests/**/*_test.py",
        without=("multigpu", "distributed"),
        theirs={
            "PrivacyEngineConvNet": "`isinstance(image, torch.ByteTensor)` is the CPU's",
            "BatchMemoryManager": "its data are on the device in workers of a `DataLoader`",
        },
        default_device=True,
        tests_a_file=6,
    ),
    "open_clip": Suite(
        "tests/test_*.py",
        source="src",
        without=("fsdp", "wds"),
        theirs={
            "transform_image_dict": "`isinstance(image, torch.ByteTensor)` is the CPU's",
            "via_scheduler": "its generator is the CPU's",
            "test_default_chunked": "its generator is the CPU's",
            "reference_forward": "its generator is the CPU's",
            "tie_ranking": "`torch.Tensor(…)` or the CPU by name makes what it compares",
            "test_training": "PyTorch's `RandomSampler` has a generator of the CPU",
            **dict.fromkeys(
                ("gen", "Gen", "naflexclap", "forward_and_encode", "clap_task", "overfit", "fused"),
                "open_clip makes models on the CPU where no device is named",
            ),
        },
        default_device=True,
        tests_a_file=2,
    ),
    "sentence-transformers": Suite("tests/**/test_*.py", default_device=True),
    "trl": Suite(
        "tests/**/test_*.py",
        without=("vllm", "cli", "skills", "distributed", "invariant"),
        theirs={"TestGeneralizedJSDLossIsPinned": "its generator is the CPU's"},
        default_device=True,
    ),
    "x-transformers": Suite("tests/test_*.py", default_device=True, tests_a_file=24),
    "ultralytics": Suite("tests/test_*.py", default_device=True),
    "ignite": Suite(
        """ignite/engine/create_supervised ignite/engine/engine ignite/handlers/checkpoint
        ignite/handlers/ema_handler ignite/handlers/lr_finder ignite/utils
        ignite/distributed/auto ignite/distributed/launcher""",
        fixtures="available_device available_device2",
    ),
    "segmentation_models.pytorch": Suite(
        "tests/**/test_*.py", constants="tests.utils.default_device", tests_a_file=5
    ),
    "torchjd": Suite(
        "tests/unit/**/test_*.py",
        source="src tests",
        theirs={"test_movedim_yields_psd": "random numbers of the device, to a fixed error"},
        constants="settings.DEVICE",
        tests_a_file=12,
    ),
    "pytorch-metric-learning": Suite(
        "tests/**/test_*.py",
        source="src .",
        without=("trainers", "datasets", "inference"),  # what they need is downloaded
        environment={"TEST_DEVICE": "{}", "TEST_DTYPES": "float32"},
        tests_a_file=2,
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
    "piq": Suite("tests/test_*.py", default_device=True, tests_a_file=6),
    "pytorch-optimizer": Suite(
        "tests/test_*.py",
        theirs={"test_basic_nn": "`torch.Tensor([…])` makes its data on the CPU"},
        default_device=True,
        tests_a_file=20,
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
    "Torch-Pruning": Suite(
        "tests/test_*.py",
        theirs={"test_serialization": "`torch.LongTensor(indices)` takes the CPU's only"},
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
    "pytorch-lightning": Suite(
        """tests/tests_fabric/**/test_*.py tests/tests_pytorch/**/test_*.py""",
        source="src tests",  # its trainer chooses the device
        without=tuple(  # several processes, other accelerators, packages of others
            """launchers ddp fsdp deepspeed model_parallel collectives cluster environments
            distributed multi sync_batchnorm tpu xla cuda mps transformer_engine bitsandbytes onnx
            servable graveyard legacy parity deprecated_api""".split()
        ),
        arguments="-k 'not ddp and not spawn and not fork and not multi and not cuda and not mps'",
        theirs={
            "is not supported in XLA": "Lightning refuses this precision where the device is XLA",
            "is not supported for `XLACheckpointIO`": "Lightning's checkpoints of XLA take no such "
            "options",
            "Skipping backward": "Lightning skips no backward pass where the device is XLA",
            "test_optimizer_step_no_closure": "Lightning says so of XLA in other words",
            "eval_inference_mode": "Lightning has no inference mode where the device is XLA",
            "through the CLI": "Lightning's command line starts no processes for XLA",
            "precision_selection_model_parallel": "Lightning has strategies of its own for XLA",
            "test_async_checkpoint_plugin": "Lightning's strategy for XLA has no plugin for "
            "checkpoints before it is asked",
        },
        tests_a_file=2,
    ),
    "vector-quantize-pytorch": Suite("tests/test_*.py", default_device=True, tests_a_file=12),
    "pytorch-forecasting": Suite("tests/**/test_*.py", default_device=True, tests_a_file=3),
    "flair": Suite("tests/**/test_*.py", constants="flair.device", tests_a_file=40),
    "skorch": Suite("skorch/tests/**/test_*.py", default_device=True, tests_a_file=4),
    "tianshou": Suite(
        "test/base/test_*.py",
        theirs={
            "test_finite_": "its environments are forked processes, which the CPU alone allows",
            "test_distribution_properties": "`torch.FloatTensor(…)` is the CPU's",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "stable-baselines3": Suite("tests/test_*.py", default_device=True, tests_a_file=3),
    "entmax": Suite("entmax/test_*.py", default_device=True, tests_a_file=10),
    "higher": Suite("tests/test_*.py", default_device=True, tests_a_file=12),
    "geotorch": Suite("test/test_*.py", default_device=True, tests_a_file=4),
    "geoopt": Suite(
        "tests/test_*.py",
        arguments="-W ignore::DeprecationWarning",
        environment=GENERATORS,
        default_device=True,
        tests_a_file=4,
    ),
    "vit-pytorch": Suite("tests/test_*.py", default_device=True),
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
    "fairscale": Suite(
        """tests/nn/checkpoint/test_*.py tests/nn/misc/test_*.py tests/nn/moe/test_*.py
        tests/nn/wrap/test_*.py tests/optim/test_*.py tests/experimental/nn/test_*.py
        tests/utils/test_*.py""",
        theirs={
            "test_forward_cpu": "it expects the CPU's random numbers",
            "adascale": "`torch.Tensor(…)` is the CPU's",
            "layerwise": "`torch.Tensor(…)` is the CPU's",
            "test_linear_model": "`torch.Tensor(…)` is the CPU's",
            "test_grad_accum": "`torch.Tensor(…)` is the CPU's",
            "test_scale_not_equal": "`torch.Tensor(…)` is the CPU's",
        },
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
    "tabnet": Suite("tests/*_test.py", default_device=True, tests_a_file=20),
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
    "litgpt": Suite(
        "tests/test_*.py",
        theirs={
            "test_against_hf_gemma": "its model is on the CPU by name",
            "test_full_script": "its generator is the CPU's",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "mmengine": Suite(
        """tests/test_hooks/test_*.py tests/test_model/test_*.py tests/test_optim/**/test_*.py
        tests/test_runner/test_*.py tests/test_structures/test_*.py""",
        theirs={"with_runner": "its generator is the CPU's"},
        default_device=True,
        tests_a_file=3,
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
    "torchinfo": Suite("tests/*_test.py", default_device=True, tests_a_file=12),
    "fvcore": Suite(
        "tests/test_*.py",
        theirs={
            "test_data_parallel": "`DataParallel` without CUDA; its inputs are on the CPU",
        },
        default_device=True,
        tests_a_file=5,
    ),
    "pytorch_optimizer": Suite(
        "tests/test_*.py",
        theirs={
            "test_": "`torch.Tensor(…)` makes its data on the CPU",
        },
        default_device=True,
        tests_a_file=8,
    ),
    "keras": Suite(
        """keras/src/layers/**/*_test.py keras/src/losses/*_test.py keras/src/metrics/*_test.py
        keras/src/optimizers/*_test.py keras/src/ops/*_test.py keras/src/trainers/*_test.py""",
        environment={"KERAS_BACKEND": "torch", "KERAS_TORCH_DEVICE": "{}"},
        tests_a_file=3,
    ),
    "torchode": Suite("tests/*_test.py", default_device=True, tests_a_file=100),
    "rl": Suite(
        """test/objectives/test_*.py test/modules/test_*.py test/rb/test_*.py
        test/transforms/test_*.py""",
        theirs={
            "test_dreamer_world_model": "its environment's data are on the CPU",
            "test_forward_shapes_and_backward": "its data are on the CPU by name",
            "test_value_norm_round_trip": "its data are on the CPU by name",
            "test_shared_params": "it asks for parameters on the CPU",
            "test_qmix": "its model is on the CPU by name",
            "(in aten::": "its storage or its environment is on the CPU by name",
            "for generator but found 'cpu'": "its generator is the CPU's",
            "test_error_maxwriter": "its storage is on the CPU by name",
            "EOFError": "its environments start in forked processes, which the CPU alone allows",
        },
        default_device=True,
        constants="torchrl.testing.get_default_devices torchrl.testing.get_available_devices",
        tests_a_file=6,
    ),
    "pytorch": Suite(
        """view_ops indexing sort_and_select shape_ops tensor_creation_ops type_promotion
        scatter_gather_ops torch nn/dropout nn/embedding nn/init nn/lazy_modules
        nn/multihead_attention nn/parametrization nn/pooling reductions optim foreach autograd
        binary_ufuncs unary_ufuncs linalg segment_reductions complex masked nestedtensor sparse
        spectral_ops dlpack serialization namedtensor distributions/distributions
        distributions/transforms native_mha modules autocast functorch/eager_transforms
        functorch/vmap""",
        tests="test",
        theirs={
            "numpy_array_binary_ufunc_promotion": "it compares `numpy` arrays of the host",
            "expanded_index": "its indices are on the CPU",
            "test_alias_from": "memory of an accelerator is not shared with the host",
            "test_copy_from": "memory of an accelerator is not shared with the host",
            "quantized": "the device has no quantised tensors, and says so",
            "test_flip": "the device has no quantised tensors, and says so",
            "test_trivial_fancy_out_of_bounds": "indices on the device are checked with "
            "`TORCH_XLA_CHECK_INDICES`",
            "out_of_bounds_idx": "the error comes when the value is read, and it is not read",
            "test_FractionalMaxPool3d_zero_samples": "the error comes when the value is read, "
            "and it is not read",
            "test_embedding_from_pretrained": "`torch.LongTensor([…])` is the CPU's",
            "test_Dropout": "it restores the CPU's random state only",
            "test_weight_norm_parametrization": "random numbers, to a rounding of bfloat16",
            "test_trunc_normal_generator": "its generator is the CPU's",
            "test_autograd_print_tensor": "it compares how a tensor prints",
            "test_no_grad_copy": "`torch.FloatTensor([…])` is the CPU's",
            "nested_tensor_outside_fast_path": "strided nested tensors are refused, and say so",
            "native_multihead": "strided nested tensors are refused, and say so",
            "complex32": "the device has no tensors of complex32, and says so",
            "test_dtype_inference_cpu_float16": "the device has no tensors of complex32, and says "
            "so",
            "test_dlpack": "the device's memory may move and is not lent",
            "mmap_loading": "what is loaded to the device is a copy of the file",
            "test_serialization": "`torch.FloatTensor()` is the CPU's",
            "TestFFTDocExamples": "its tensors are the CPU's",
            "unsafe_flag": "the error comes when the value is read, and it is not read",
            "test_byte_mask_accumulate": "PyTorch warns of masks of bytes twice",
            "test_no_grad_inside_grad": "its operator has kernels for the CPU and CUDA only",
            "test_to_empty": "modules keep their parameters when they move to the device",
            "test_max_pool3d_ndhwc": "the result of a single image is not in the image's order",
            "large_tensor": "4 GB, longer than a test may take",
        },
        default_device=True,
        device_types=True,
        tests_a_file=40,
    ),
    "torcheval": Suite(
        "tests/metrics/functional/**/test_*.py",
        theirs={
            "test_with_randomized_data_getter": "its data are on the CPU by name",
            "test_binary_f1_score_thresholding": "`torch.Tensor([…])` is the CPU's",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "funsor": Suite(
        "test/test_*.py",
        environment={"FUNSOR_BACKEND": "torch"},
        default_device=True,
        tests_a_file=10,
    ),
    "lightly": Suite(
        "tests/loss/test_*.py tests/models/**/test_*.py",
        theirs={"test_swav_frozen": "its data are on the CPU by name"},
        default_device=True,
        tests_a_file=3,
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
        environment=GENERATORS,
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
        environment=GENERATORS,
        default_device=True,
        tests_a_file=8,
    ),
    "composer": Suite(
        "tests/algorithms/test_*.py tests/metrics/test_*.py tests/test_loss*.py",
        theirs={"test_map_imperfect": "`torch.Tensor([…])` is the CPU's"},
        environment=GENERATORS,
        default_device=True,
        tests_a_file=3,
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
        environment=GENERATORS,
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
    "TransformerLens": Suite(
        "tests/unit/**/test_*.py",
        without=("tools",),
        theirs={"test_alibi_changes_output": "its inputs are on the CPU by name"},
        default_device=True,
        tests_a_file=1,
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
    "torchani": Suite(
        "tests/test_*.py", environment=GENERATORS, default_device=True, tests_a_file=5
    ),
    "pykeen": Suite(
        "tests/**/test_*.py",
        source="src",
        without=("lightning",),  # whose names differ from run to run
        environment=GENERATORS,
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
    # needs pytest-integration
    "torchtune": Suite(
        "tests/torchtune/m*/**/test_*.py tests/torchtune/rlhf/**/test_*.py",
        arguments="--without-integration --without-slow-integration",
        theirs={
            "TestFluxAutoencoder": "random numbers in the order of the CPU's convolutions",
            "test_qlora": "torchtune writes what it dequantises to the CPU",
            "test_attention_aoti": "PyTorch's export makes its cache on the CPU",
        },
        environment=GENERATORS,
        default_device=True,
        tests_a_file=3,
    ),
    "torchtitan": Suite(
        "tests/unit_tests/test_*.py", environment=GENERATORS, default_device=True, tests_a_file=4
    ),
    "ttach": Suite("tests/test_*.py", default_device=True, tests_a_file=20),
    "openfold": Suite(
        "tests/test_*.py",
        theirs={
            "test_make_": "`torch.FloatTensor(…)` is the CPU's",
            "TestPermutation": "its rotations are on the CPU by name",
        },
        environment=GENERATORS,
        default_device=True,
        tests_a_file=6,
    ),
    "torch-audiomentations": Suite(
        "tests/test_*.py", environment=GENERATORS, default_device=True, tests_a_file=4
    ),
    "azula": Suite("tests/test_*.py", environment=GENERATORS, default_device=True, tests_a_file=10),
    "examples": Suite(""),
}
