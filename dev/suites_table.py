"""What of other libraries' test suites dev/suites runs, and why tests of theirs fail on xla."""

from suites_sciences import SCIENCES
from suites_suite import Suite

SHARED = "`datasets` shares a tensor with processes, which the CPU alone allows"
PLAIN_LOADER = "accelerate takes a plain `DataLoader` for its own where the device is XLA"

SUITES = {
    **SCIENCES,
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
        hub=True,
        tests_a_file=25,
    ),
    "peft": Suite(
        """custom_models decoder_models encoder_decoder_models feature_extraction_models
        seq_classifier vision_models initialization tuners_utils low_level_api bufferdict
        incremental_pca integrations lora_variants lorafa loraplus osf other pvera randlora
        riemannian_lora shira trainable_tokens vblora vera mapping mixed lora_conversion
        lora_intruders adaption_prompt arrow auto boft config cpt deft frod helpers hub_features
        lora_ga multitask_prompt_tuning poly stablediffusion target_parameters unilora velora
        xlora""",
        source="src",
        choosers="peft.utils.infer_device",
        hub=True,
        tests_a_file=16,
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
        models/transformers/models_transformer_flux models/transformers/models_transformer_wan
        pipelines/ddim/ddim pipelines/ddpm/ddpm pipelines/dit/dit pipelines/pndm/pndm
        pipelines/stable_diffusion/stable_diffusion
        pipelines/stable_diffusion/stable_diffusion_inpaint
        pipelines/stable_diffusion_xl/stable_diffusion_xl
        pipelines/stable_diffusion_3/pipeline_stable_diffusion_3
        pipelines/latent_consistency_models/latent_consistency_models
        pipelines/controlnet/controlnet pipelines/flux/pipeline_flux pipelines/sana/sana
        pipelines/kandinsky2_2/kandinsky pipelines/pixart_alpha/pixart pipelines/wan/wan
        pipelines/ltx/ltx pipelines/latte/latte pipelines/cogview4/cogview4
        pipelines/lumina2/pipeline_lumina2 pipelines/mochi/mochi pipelines/qwenimage/qwenimage
        pipelines/z_image/z_image pipelines/marigold/marigold_depth
        pipelines/animatediff/animatediff pipelines/cogvideo/cogvideox
        pipelines/stable_video_diffusion/stable_video_diffusion pipelines/shap_e/shap_e""",
        source="src",
        hub=True,
        theirs={
            "xla not supported. Supported": "diffusers places models on the CPU and CUDA "
            "only (`device_map`)",
        },
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
        generators=True,
        default_device=True,
        tests_a_file=1,
    ),
    "einops": Suite(
        "einops/tests/test_*.py",
        environment={"EINOPS_TEST_BACKENDS": "numpy,torch"},
        default_device=True,
        tests_a_file=20,
    ),
    # without the folder `tensordict`, where the installed package, which has C++ in it, is used
    "tensordict": Suite(
        """test/smoke_tes*.py test/tensordict/test_*.py test/nn/test_*.py test/tensorclass/test_*.py
        test/utils/test_*.py test/store/test_*.py""",
        source="test",
        constants="_utils_internal.get_available_devices",
        generators=True,
        theirs={
            "test_memmap_robust_key": "it expects the default device to be the CPU",
            "sync_toggle": "it expects the default device to be the CPU",
            "test_stack[h5]": "tensors of HDF5 are on the CPU",
            "test_save_load": "its files' tensors are on the CPU",
            "byte_roundtrip": "`torch.frombuffer` is the CPU's",
            "CPUGeneratorImplState": "tensordict sets the CPU's random state",
        },
        default_device=True,
        tests_a_file=40,
    ),
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
    "sentence-transformers": Suite(
        "tests/**/test_*.py",
        # models of the hub itself, other runtimes, several processes
        without=tuple(
            """pretrained multi_process backends opensearch text_generation any_to_any image
            train_stsb nanobeir search_engines""".split()
        ),
        generators=True,
        theirs={
            "(in aten::scatter_add_": "it pools on the CPU by name",
            "Torch not compiled with CUDA": "its gradient cache asks for CUDA's random state",
            "(in aten::embedding": "its model is on the CPU by name",
            "cannot share the memory": SHARED,
        },
        default_device=True,
        choosers="sentence_transformers.util.environment.get_device_name",
        hub=True,
        tests_a_file=4,
    ),
    "trl": Suite(
        "tests/**/test_*.py",
        without=("vllm", "cli", "skills", "distributed", "invariant"),
        generators=True,
        theirs={
            "TestGeneralizedJSDLossIsPinned": "its generator is the CPU's",
            "cannot share the memory": SHARED,
        },
        default_device=True,
        hub=True,
        tests_a_file=5,
    ),
    "x-transformers": Suite("tests/test_*.py", default_device=True, tests_a_file=60),
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
    "pytorch-metric-learning": Suite(
        "tests/**/test_*.py",
        source="src .",
        without=("trainers", "datasets", "inference"),  # what they need is downloaded
        environment={"TEST_DEVICE": "{}", "TEST_DTYPES": "float32"},
        tests_a_file=2,
    ),
    "piq": Suite("tests/test_*.py", default_device=True, tests_a_file=6),
    "pytorch-optimizer": Suite(
        "tests/test_*.py",
        theirs={"test_basic_nn": "`torch.Tensor([…])` makes its data on the CPU"},
        default_device=True,
        tests_a_file=20,
    ),
    "Torch-Pruning": Suite(
        "tests/test_*.py",
        theirs={"test_serialization": "`torch.LongTensor(indices)` takes the CPU's only"},
        default_device=True,
        tests_a_file=1,
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
    "stable-baselines3": Suite(
        "tests/test_*.py",
        theirs={"test_deterministic": "the second of two equal trainings is compiled (limits.md)"},
        default_device=True,
        tests_a_file=3,
    ),
    "entmax": Suite("entmax/test_*.py", default_device=True, tests_a_file=10),
    "higher": Suite("tests/test_*.py", default_device=True, tests_a_file=12),
    "vit-pytorch": Suite("tests/test_*.py", default_device=True),
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
    "tabnet": Suite("tests/*_test.py", default_device=True, tests_a_file=20),
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
    "lightly": Suite(
        "tests/loss/test_*.py tests/models/**/test_*.py",
        theirs={"test_swav_frozen": "its data are on the CPU by name"},
        default_device=True,
        tests_a_file=3,
    ),
    "composer": Suite(
        "tests/algorithms/test_*.py tests/metrics/test_*.py tests/test_loss*.py",
        theirs={"test_map_imperfect": "`torch.Tensor([…])` is the CPU's"},
        generators=True,
        default_device=True,
        tests_a_file=3,
    ),
    "TransformerLens": Suite(
        "tests/unit/**/test_*.py",
        without=("tools",),
        theirs={"test_alibi_changes_output": "its inputs are on the CPU by name"},
        default_device=True,
        tests_a_file=1,
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
        generators=True,
        default_device=True,
        tests_a_file=3,
    ),
    "torchtitan": Suite(
        "tests/unit_tests/test_*.py", generators=True, default_device=True, tests_a_file=4
    ),
    "ttach": Suite("tests/test_*.py", default_device=True, tests_a_file=20),
    "examples": Suite(""),
    # with a stand-in for the callbacks of Keras
    "DeepCTR-Torch": Suite(
        "tests/**/*_test.py",
        constants="tests.utils.get_device",
        environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        tests_a_file=2,
    ),
    "pfrl": Suite(
        "tests/**/test_*.py",
        without=("async", "atari"),
        theirs={
            "(in aten::addmm": "pfrl works on the CPU where there is no CUDA",
            "'lengths' argument": "lengths that PyTorch takes on the CPU only",
        },
        default_device=True,
        tests_a_file=2,
    ),
    "poutyne": Suite(
        "tests/**/test_*.py",
        theirs={
            "for generator but found 'cpu'": "PyTorch's `RandomSampler` has a generator of the CPU",
            "test_load_checkpoint": "the checkpoint that it compares with is on the CPU by name",
        },
        default_device=True,
        tests_a_file=4,
    ),
    "curated-transformers": Suite(
        "curated_transformers/tests/layers/test_*.py curated_transformers/tests/util/test_*.py",
        fixtures="torch_device",
        default_device=True,
        tests_a_file=10,
    ),
    "foolbox": Suite(
        "tests/test_*.py", arguments="--backend=pytorch", default_device=True, tests_a_file=8
    ),
    "GenerativeModels": Suite("tests/test_*.py", default_device=True, tests_a_file=3),
    "titans-pytorch": Suite("tests/test_*.py", default_device=True, tests_a_file=12),
    "pytorch-grad-cam": Suite("tests/test_*.py", default_device=True, tests_a_file=6),
    "pytorch-crf": Suite("tests/test_*.py", default_device=True, tests_a_file=30),
    "ncps": Suite("ncps/tests/test_*torch*.py", default_device=True, tests_a_file=20),
    "torchscale": Suite("tests/test_*.py", default_device=True, tests_a_file=6),
}
