"""The smallest model of each of timm's families."""

import torch

from .case import Case, Scale

TIMM = """
test_byobnet test_convnext test_convnext3 test_efficientnet test_efficientnet_gn
test_efficientnet_evos test_mambaout test_nfnet test_resnet test_vit test_vit3 test_vit4
botnet26t_256 eca_botnext26ts_256 halonet_h1 gernet_s repvgg_a0 cait_xxs24_224 coat_lite_tiny
convit_tiny convmixer_768_32 convnext_atto crossvit_9_240 csatv2 cspdarknet53 darknet17 davit_tiny
deit_tiny_distilled_patch16_224 densenet121 dla46_c dpn48b edgenext_xx_small efficientformer_l1
efficientformerv2_s0 efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0
fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnetv2_100 hardcorenas_a hgnetv2_b0 hiera_tiny_224
hrnet_w18_small inception_next_atto inception_v3 inception_v4 levit_128s coatnet_pico_rw_224
poolformer_s12 mixer_s32_224 mobilenetv3_small_050 mobilevit_xxs mobilevitv2_050 mvitv2_tiny
nest_tiny nextvit_small pit_ti_224 pvt_v2_b0 regnetx_002 repghostnet_050 repvit_m0_9
res2net50_26w_4s resnest14d resnet18 rexnet_100 selecsls42 legacy_seresnet18 sequencer2d_s
shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224 swinv2_cr_tiny_224
tiny_vit_5m_224 tnt_s_patch16_224 twins_svt_small vgg11_bn visformer_tiny vit_tiny_r_s16_p8_224
vit_relpos_small_patch16_224 volo_d1_224 ese_vovnet19b_slim xception41 xcit_nano_12_p16_224
"""


def timm_case(name: str, scale: Scale) -> Case:
    import timm

    torch.manual_seed(0)
    try:
        model = timm.create_model(name, num_classes=10, img_size=scale.image)
        size = scale.image
    except Exception:
        model = timm.create_model(name, num_classes=10)
        config = model.default_cfg
        fixed = config["input_size"][-1] if config.get("fixed_input_size") else scale.image
        size = max(fixed, (config.get("min_input_size") or (0,))[-1])
    return Case(model, lambda g: {"x": torch.randn(scale.batch, 3, size, size, generator=g)})
