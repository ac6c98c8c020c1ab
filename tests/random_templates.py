"""What lines of random programs are made of: templates, and what happens around them."""

import re

# Fields: x any tensor, f floating, i integral, b bool, c complex, r that takes part in autograd, e
# whose values are exact, o complex of no uncertain angle; y broadcasts with the first one; w may
# be written; d, D its dimensions; n an index in d, s a number, k a small one; I an index of the
# first, R one that reads values, J of device tensors; p a permutation, t a dtype.
# Left out, since a rounding error or PyTorch's own freedom would decide: bytes and logarithms of
# numbers that are not exact; products written over their factors; writes to the parts of
# `unsafe_chunk`, which need not be views; hooks on a view whose `grad_fn` nobody has seen since
# its base was written (they crash on the CPU, too).
VIEWS = """
{x}[{I}] | {x}[{I}] | {x}[{I}] | {x}.transpose({d}, {D}) | {x}.permute({p}) | {x}.unsqueeze({d})
{x}.squeeze() | {x}.squeeze({d}) | {x}.flatten() | {x}.reshape(-1) | {x}.expand(2, *{v}.shape)
{x}.unsqueeze(0).expand(3, *[-1] * {v}.dim()) | {x}.narrow({d}, 0, 1) | {x}.select({d}, {n})
{x}.unfold({d}, 1, 1) | {x}.unfold({d}, min(2, {v}.size({d})), 1) | {x}.diagonal()
{x}.movedim({d}, {D}) | {x}.diagonal(1, {d}, {D}) | {c}.real | {c}.imag | {c}.conj()
torch.view_as_real({c}.resolve_conj()) | {x}.conj() | {x}.chunk(2, {d})[0] | {x}.split(2, {d})[-1]
{x}.unbind({d})[-1] | {x}.detach() | {x}.contiguous() | {x}.mT | {x}.swapaxes({d}, {D})
{x}.view({v}.shape) | {x}.view(-1) | {x}.as_strided({strided}) | {x}.as_strided({strided})
{x}.view_as({v}) | {x}.data | {x}.ravel() | {x}.tensor_split(2, {d})[1]
{x}.unflatten({d}, (-1, 1)) | {x}.T | {x}.expand_as({v}) | {x}.adjoint()
torch.view_as_complex({f}.unsqueeze(-1).repeat({ones}, 2)) | {c}.conj().imag
({c}.conj()[{I}]).real | H.as_bytes({e}) | {e}.clone().view(torch.int8)
torch._neg_view({f}) | {x}.broadcast_to(2, *{v}.shape)
"""
WRITES = """
{w}[{I}] = {s} | {w}[{I}] += {s} | {w}[{I}] *= {k} | {w}[{I}] = {vy} | {w}[{J}] = {s}
{w}[{M}] = {s} | {w}[{J}] += {k} | {w}.add_({s}) | {w}.mul_({k}) | {w}.sub_({y})
{w}.add_({y}, alpha={k}) | {w}.copy_({y}) | {w}.zero_() | {w}.fill_({s}) | {w}.neg_()
{w}.clamp_(-1, 2) | {w}.abs_() | {w}.masked_fill_({v} == {v}, {s})
{w}.index_fill_({d}, {ix}, {s}) | {w}.index_add_({d}, {ix}, {v}[{lead}[0, 0]])
{w}.index_copy_({d}, {ix}[:1], {v}.narrow({d}, 0, 1)) | {w}.cumsum_({d}) | {w}.tril_()
{w}.triu_(1) | {w}.scatter_({d}, {v}.narrow({d}, 0, 1).long() * 0, {s})
{w}.scatter_add_({d}, {v}.long() * 0, {v}.clone()) | {w}.unsqueeze_({d}) | {w}.squeeze_()
{w}.transpose_({d}, {D}) | {w}.t_() | {w}.data.add_({k}) | torch.add({y}, {k}, out={w})
torch.mul({v}, {y}, out={w}) | {w}.logical_not_() | {w}.square_()
{w}.transpose({d}, {D}).add_({k}) | {w}[{I}].mul_({k}) | {w}.select({d}, {n}).zero_()
{w}.diagonal().fill_({s}) | {w}.view(-1)[::2] = {s} | {w}.flatten()[1:] = {s}
{w}.unsqueeze(0).expand(2, *{v}.shape).add_(1) | {w}.expand(2, *{v}.shape).copy_({v})
{w}.detach().mul_({k}) | {w}.as_strided({apart}).add_({k}) | {w}.as_strided({strided}).zero_()
{w}.sigmoid_() | {w}.addcmul_({y}, {y}, value=0.5) | {w}.lerp_({v} * 2, 0.25)
torch._foreach_add_([{w}, {v}.clone()], {k}) | torch._foreach_mul_([{w}], [{y}])
{w}.set_({v}.clone()) | {w}.relu_() | {w}.exp_() | {w}.pow_(2) | {w}.remainder_(3) | {w}.fmod_(2)
{w}.conj().mul_({k}) | {e}.clone().floor_() | {c}.real.mul_({k}) | {c}.imag.add_({s})
{c}.conj()[{I}] = {s} | {c}.conj().imag.zero_() | {w}.eq_({y})
{w}.index_put_(({ix},), {v}[0] * 2) | {w}.index_put_(({ix},), {v}[0].clone(), accumulate=True)
{w}[{R}] = {s} | {w}[{R}] += {k} | {w}.unfold({d}, 1, 1).add_({k}) | {w}.swapaxes_({d}, {D})
{w}.fill_diagonal_({s}) | {w}.bitwise_not_() | {w}.div_({k}) | {w}.masked_fill_({M}, {s})
{w}.where({M}, {s}) | {w}[{lead}] = {s} | {w}[..., ::2] -= {k} | {w}[...] = {y}
{w}.floor_divide_({k}) | {w}.put_({ix} * 0, {v}.flatten()[:1].expand({ix}.shape[0]))
{w}.masked_scatter_({M}, {v} * 2) | torch.sum({v}, {d}, out={w}) | {w}.resize_({v}.shape)
{w}.requires_grad_() | {w}.unbind({d})[0].add_({k})
{w}.baddbmm_({v}.clone(), {v}.clone()) | {w}.cumprod_({d})
{w}.view(torch.uint8)[...] = 0 | torch._neg_view({w}).add_({k}) | {w}.real.add_({k})
{w}.T.zero_() | {w} += {y} | {w} *= {k}
"""
ELEMENTWISE = """
{x} + {s} | {x} * {s} | {x} - {y} | {x} + {y} | {x} * {y} | {x} / {k} | {x} + {y} | {s} - {x}
-{x} | {x}.abs() | {x}.square() | {e}.sign() | {f}.sin() | {f}.tanh() | {f}.sigmoid()
torch.relu({x}) | {f}.clamp(-3, 3).exp() | {e} > {y} | {e} == {e2} | {e} <= {k}
{e}.logical_not() | {i} & {i2} | {i} | {b} ^ {b2} | ~{b} | {i} // {k} | {e} % {k} | {e} // {k}
torch.maximum({x}, {y}) | torch.minimum({e}, {e2}) | torch.where({e} > 0, {y}, {s})
torch.where({b}, {y}, {y}) | {e}.floor() | {e}.to(torch.{t}) | {e}.to(torch.{t}) | {x}.clone()
{x}.float() | {x}.double() | {e}.long() | {e}.bool() | {x}.masked_fill({e} > {k}, {s})
{x}.to({y}) | {x}.add({y}, alpha={k}) | {x}.addcmul({y}, {y}) | {x}.lerp({y}, 0.5) | {x}.pow(2)
{x}.pow({k}) | {x} ** 3 | {x}.atan2({y}) | {x}.isnan() | {x}.isfinite() | {x}.nan_to_num()
{e}.fmod({k}) | {e}.round() | {e}.trunc() | torch.clamp({x}, min={y}) | {x}.clamp(max={k})
{i} << 1 | {i} >> 1 | {f}.softmax({d}) | {f}.log_softmax({d}) | torch.rsub({x}, {y})
{x}.type_as({y}) | {x}.reciprocal() | {o}.angle() | {c}.abs() | {x}.sgn()
{x} + torch.tensor({s}) | {x} * torch.tensor({s}, dtype=torch.{t})
{x}.addcdiv({y}, {y}.abs() + 1) | {f}.sqrt() | {x}.positive() | {x} + {s}j
torch.logaddexp({x}, {y}) | torch.heaviside({e}, {e2}) | torch.copysign({x}, {y})
{x}.isclose({y}) | {x}.hypot({y}) | torch.nn.functional.gelu({f})
torch.nn.functional.layer_norm({f}, {v}.shape[-1:]) | torch.nn.functional.silu({f})
{x}.xlogy({y}.abs() + 1)
"""
REDUCTIONS = """
{x}.sum() | {x}.sum({d}) | {x}.sum({d}, keepdim=True) | {x}.mean() | {x}.mean({d}) | {x}.prod()
{x}.prod({d}) | {e}.amax({d}) | {e}.amin() | {e}.max({d})[0] | {e}.min({d}).values | {e}.any()
{e}.all({d}) | {x}.cumsum({d}) | {x}.cumprod({d}) | {f}.var({d}) | {f}.std() | {f}.logsumexp({d})
{x}.norm() | {f}.norm(dim={d}) | {e}.count_nonzero() | {x}.sum(({d}, {D}))
{x}.sum(dtype=torch.{t}) | {e}.cummax({d})[0] | {x}.nansum() | {e}.median()
{e}.sort({d}, stable=True)[0] | {e}.sort({d}, stable=True, descending=True)[1]
{e}.topk(1, {d})[0] | {e}.argsort({d}, stable=True) | {x}.std({d}, unbiased=False)
{x}.logcumsumexp({d}) | {e}.max() | {e}.min() | {e}.aminmax()[1] | {x}.trace() | {e}.quantile(0.5)
{e}.unique() | {e}.mode({d})[0] | {e}.kthvalue(1, {d})[0] | {e}.isin({e2}) | {e}.equal({e2})
{g}.histc(4, -3, 3) | {x}.diff(dim={d}) | {x}.cov() | {x}.all()
"""
SHAPES = """
torch.cat([{x}, {v}], {d}) | torch.stack([{x}, {v}], {d}) | {x}.repeat(2, *{ones2})
{x}.flip({d}) | {x}.roll(1, {d}) | {x}.tril() | {x}.diag_embed()
torch.nn.functional.pad({x}, (1, 2)) | torch.nn.functional.pad({x}, (-1, 1), value={s})
{x}.gather({d}, {v}.long() * 0) | {x}.index_select({d}, {ix}) | {x}.take({ix} * 0) | {x}[{J}]
{x}[{J}] | {x}[{R}] | {x}[{R}] | {x}[{M}] | {x}.repeat_interleave(2, {d}) | {x} @ {x2}
{x}.matmul({v}.mT) | torch.einsum("...i,...j->...ij", {x}, {v}) | {x}.nonzero()
{x}.masked_select({M}) | {x}[{lead}] | torch.cat([{x}, {y}])
torch.cat([{x}.flatten(), {x2}.flatten()]) | torch.outer({x}.flatten(), {x2}.flatten()[:3])
{x}.rot90() | torch.zeros_like({x}) | torch.full_like({x}, {s}) | {x}.new_ones(3)
torch.arange(5, device=device) | torch.eye(3, device=device)
torch.tensor([1.5, 2.0], device=device) | torch.linspace(0, 1, 5, device=device)
torch.tensor({s}, device=device) | {x}.tile(2)
{x}.index_add({d}, {ix}, {v}.index_select({d}, {ix})) | {x}.scatter({d}, {v}.long() * 0, {s})
{x}.clone().contiguous().select_scatter({v}.select({d}, {n}), {d}, {n})
torch.triu_indices(3, 3, device=device)
torch.bincount({e}.abs().long().flatten()) | {x}.to_sparse().to_dense() | torch.atleast_2d({x})
torch.meshgrid({x}.flatten()[:2], {x2}.flatten()[:3], indexing="ij")[0]
torch.empty(0, 3, device=device) | {x}.new_zeros(0) | torch.zeros(2, 0, 3, device=device)
torch.nn.functional.one_hot({e}.abs().long() % 4, 5)
torch.searchsorted({e}.flatten().sort()[0], {e2}) | torch.broadcast_tensors({x}, {y})[0].clone()
"""
READS = """
{x}.sum().item() | {e}.tolist() | bool(({e} > 0).any()) | int({e}.abs().sum()) | {x}.shape
H.strides({x}) | {x}.is_contiguous() | {x}.numel() | {x}.flatten()[0].item() | {x}.dtype
{x}.requires_grad | {x}.is_conj() | len({x}) | torch.equal({x}, {x2})
"""
GRADIENTS = """
torch.autograd.grad({r}.sum(), {leaf}, allow_unused=True, retain_graph=True)[0]
torch.autograd.grad({r}.square().sum(), {leaf}, allow_unused=True, create_graph=True)[0]
torch.autograd.grad({r}.abs().sum(), {leaf}, allow_unused=True, retain_graph=True)[0]
{r}.detach() | {r}.clone().requires_grad_()
"""


MORE_VIEWS = """
torch.view_as_real({c}) | {c}.real.T | {c}.conj().imag.unsqueeze(-1) | {c}.H | {c}.conj().real
{x}.hsplit(1)[0] | {x}.as_strided({strided}).T | {x}.diagonal(-1, {d}, {D}) | {x}[{I}].view(-1)
{x}[{I}].as_strided({strided}) | {e}.view({v}.dtype) | {x}.narrow({d}, 1, 0) | {x}[..., None][{I}]
torch.ops.aten.alias({x}) | {e}.view(torch.int32) | {x}.unsafe_chunk(2, {d})[0].clone()
{c}.mH.real | {x}.expand(0, *{v}.shape) | {x}.unfold({d}, 1, 2).squeeze(-1)
{x}.reshape({v}.shape[::-1])
torch.squeeze({x}, (0, {d})) | {x}.view_as({v}).detach() | torch.real({x}) | {f}.mT.mT[{I}]
"""
MORE_WRITES = """
{w}.data = {v} * 2 | {w}.data = {x}.clone() | {w}.set_({x}) | {w}.set_({v})
{w}.set_({v}.untyped_storage(), 0, {v}.shape) | {w}.as_strided_({apart}) | {w}.data.zero_()
{w}.expand_as({w}).add_({k}) | {w}.index_put_(({ix}, {ix}), {v}[0, 0].clone(), accumulate=True)
{w}.index_put_(({ix}, {ix}), {v}[:1, 0] * 2) | {w}[{J}] = {v}[{lead}] | {w}[{M}] += {k}
{w}.index_put_(({ix} * 0,), {v}[0].clone(), accumulate=True)
{w}[{M}] = {y} | {w}[None, ..., None] += {k}
{w}.index_put_(({v} == {v},), {v}.flatten()) | {w}[{v} > 0] *= {k} | {w}[{b}] = {s}
{w}.scatter_reduce_({d}, {v}.long() * 0, {v}.clone(), "sum", include_self=False)
{w}.scatter_reduce_({d}, {v}.long() * 0, {v}.clone(), "amax")
{w}.index_reduce_({d}, {ix}, {v}.index_select({d}, {ix}), "amin") | {w}.nan_to_num_(1, 2, 3)
{w}.addmm_({v}.clone(), {v}.clone()) | {w}.addr_({v}[0].clone(), {v}[0].clone())
{w}.addmv_({x}.clone(), {x2}.clone()) | {w}.addbmm_({x}.clone(), {x2}.clone())
{w}.clamp_min_({y}) | {w}.clamp_max_({k}) | {w}.atan2_({y}) | {w}.copysign_({y}) | {w}.xlogy_({k})
{w}.renorm_(2, {d}, 1.0) | {w} &= {y} | {w} |= {y} | {w} ^= {y} | {w} //= {k} | {w} %= 3
{w} -= {y}
{w} /= {k} | {w} **= 2 | {w}.add_({c}) | {w}.copy_({c}.real) | {w}.real.copy_({w}.imag)
{w}.imag.fill_({s}) | {w}.conj().copy_({y}) | torch.view_as_real({c})[..., 0] += {k}
{w}.conj_physical_()
{w}.flip({d}).add_({k}) | {w}.hypot_({y}) | {w}.sign_() | {w}.reciprocal_()
{w}.square_().add_(1).log_()
{w}.add_(1).sqrt_()
{w}.div_(0) | {w}.mul_(float("inf")) | {w}.masked_fill_({M}, float("nan")) | {w}.squeeze_({d})
{w}.swapdims_({d}, {D}) | {w}.addcdiv_({y}, {y}.abs() + 1, value={k}) | {w}.gt_({y})
{w}.digamma_()
{w}.logical_and_({y}) | {w}.bernoulli_(0.0) | {w}.sinh_() | {w}.erf_() | {w}.round_(decimals=1)
{w}.diagonal().add_({v}.diagonal()) | {w}.view(-1).copy_({v}.T.reshape(-1))
{w}.T.copy_({v}.flip({d}))
{w}[{I}].copy_({v}.flip({d})[{I}]) | {w}.unbind({d})[0].copy_({w}.unbind({d})[-1]) | {w}.trunc_()
{w}.split(1, {d})[0].mul_({k}) | torch._foreach_add_([{w}, {x}.clone()], [{y}, {k}])
"""
OUTS = """
torch.sub({v}, {y}, out={w}) | torch.matmul({x}, {x2}, out={w}) | torch.cumsum({x}, {d}, out={w})
torch.cat([{x}, {v}], {d}, out={w}) | torch.stack([{x}, {v}], {d}, out={w})
torch.abs({x}, out={w})
torch.where({M}, {v}, {y}, out={w}) | torch.clamp({x}, -1, 1, out={w}) | torch.eq({x}, {y}, out={w})
torch.index_select({x}, {d}, {ix}, out={w}) | torch.gather({x}, {d}, {v}.long() * 0, out={w})
torch.amax({e}, {d}, out={w}) | torch.mean({x}, {d}, out={w}) | torch.arange(5, out={w})
torch.zeros(2, 3, out={w}) | torch.full((3,), {s}, out={w}) | torch.linspace(0, 1, 5, out={w})
torch.nonzero({e}, out={w}) | torch.masked_select({x}, {M}, out={w}) | torch.sigmoid({x}, out={w})
torch.max({e}, {d}, out=({w}, {i})) | torch.sort({e}, stable=True, dim={d}, out=({w}, {i}))
torch.topk({e}, 1, {d}, out=({w}, {i})) | torch.add({w}, {w}, out={w})
torch.add({v}.T, 1, out={w})
torch.mul({w}[{I}], 2, out={w}) | torch.pow({x}, 2, out={w}) | torch.neg({x}, out={w}.T)
torch.prod({x}, {d}, out={w}) | torch.div({x}, {k}, out={w}) | torch.tril({x}, out={w})
torch.any({e}, {d}, out={w}) | torch.bitwise_and({i}, {i2}, out={w})
torch.real({c}).copy_({c}.imag)
torch.mm({x}, {x2}, out={w}) | torch.addmm({x}, {x2}, {x2}, out={w})
torch.outer({x}, {x2}, out={w})
torch.var({f}, {d}, out={w}) | torch.take({x}, {ix} * 0, out={w})
torch.complex({f}, {f}, out={w}) | torch.angle({o}, out={w}) | torch.conj_physical({c}, out={w})
torch.add({x}, {y}, out={w}[{I}]) | torch.eye(3, out={w}) | torch.sign({e}, out={w})
torch.nn.functional.relu({f}, inplace=True) | torch._foreach_copy_([{w}], [{y}])
torch._foreach_zero_([{w}, {x}.clone()]) | torch._foreach_lerp_([{w}], [{y}], 0.5)
torch._foreach_addcmul_([{w}], [{y}], [{y}], 0.5) | torch._foreach_sub_([{w}], [{y}], alpha={k})
torch._foreach_neg_([{w}]) | torch._foreach_maximum_([{w}], [{y}])
torch._foreach_clamp_min_([{w}], 0)
torch._foreach_mul_([{w}, {w}], {k}) | torch._foreach_div_([{w}], torch.tensor({k}, device=device))
"""
MORE_VALUES = """
{f} / 0 | {e}.log() | ({f} * float("inf")).detach() | {f}.nan_to_num(0.5, 3, -3) | {f}.rsqrt()
{f}.masked_fill({M}, float("nan")) | torch.fmax({x}, {y}) | torch.fmin({x}, {y}) | {f}.log2()
{x}.isinf() | {e}.signbit() | torch.ldexp({f}, {k}) | {x}.erf() | {x}.expm1() | {x}.abs().log1p()
{x}.sinh() | torch.where({b}, {s}, {y}) | torch.where({M}, {s}, {k}) | torch.where({b}, {x}, {k})
{f}.frexp()[1]
{f}.to(torch.float16) | {f}.to(torch.bfloat16) | torch.complex({f}, {f}) | torch.polar({f}, {f})
{x}.float_power({k}) | torch.true_divide({x}, {y}) | torch.gcd({i}, {i2}) | torch.lcm({i}, {i2})
{f}.sinc() | torch.special.entr({f}) | torch.nn.functional.softplus({f})
torch.nn.functional.mish({f})
torch.nn.functional.elu({f}) | torch.nn.functional.leaky_relu({f}) | {x}.hardshrink()
{f}.logit(0.1)
torch.nn.functional.mse_loss({f}, {f}) | torch.nn.functional.huber_loss({f}, {v} * 2)
torch.nn.functional.binary_cross_entropy_with_logits({f}, {v}.sigmoid()) | {x}.fmod({y})
{x}.exp2()
torch.nn.functional.cross_entropy({f}, {v}.argmax(1)) | torch.nn.functional.normalize({f}, dim={d})
torch.nn.functional.nll_loss({f}.log_softmax(1), {v}.long()[:, 0] * 0) | {x}.remainder({y})
torch.nn.functional.max_pool1d({f}, 2, 1) | torch.nn.functional.avg_pool1d({f}, 2, 1)
torch.nn.functional.conv1d({f}, {v}.transpose(0, 1)[:1])
torch.nn.functional.pad({x}, (1, 1), "reflect")
torch.nn.functional.interpolate({f}, scale_factor=2)
torch.nn.functional.embedding({i}.abs() % 2, {f})
torch.nn.functional.cosine_similarity({f}, {v} + 1, {d}) | torch.nn.functional.group_norm({f}, 1)
torch.nn.functional.scaled_dot_product_attention({f}, {v}, {v}) | torch.nn.functional.glu({f}, {d})
torch.nn.functional.linear({x}, {v}) | torch.bmm({x}, {v}.mT) | torch.addmm({x}, {v}, {v}.mT)
torch.baddbmm({x}, {v}, {v}.mT) | torch.tensordot({x}, {v}, 1) | torch.kron({x}, {x2})
{x}.mv({x}[0])
{f}.cdist({v} + 1) | {f}.var_mean({d})[0] | {e}.nanmedian() | {e}.nanquantile(0.5)
{x}.nanmean({d})
{e}.unique(return_inverse=True)[1] | {e}.unique_consecutive() | {e}.unique(dim={d}) | {e}.argwhere()
{e}.topk(2, {d}, largest=False)[0] | {e}.sort({d}, stable=True).indices | {e}.argmax({d})
{e}.argmin()
{e}.cummin({d}).values | {e}.bucketize(torch.tensor([0.0, 1.0], device=device))
{e}.count_nonzero({d})
torch.cartesian_prod({x}.flatten()[:2], {x2}.flatten()[:3]) | torch.trapezoid({x}, dim={d})
{x}.vander(3)
torch.block_diag({x}, {x2}) | {x}.take_along_dim({v}.long() * 0, {d})
{x}.index_fill({d}, {ix}, {s})
{x}.masked_scatter({M}, {v} * 2)
{x}.clone().contiguous().slice_scatter({v}.narrow({d}, 0, 1), {d}, 0, 1)
{x}.clone().contiguous().diagonal_scatter({v}.diagonal() * 2)
{x}.clone().contiguous().as_strided_scatter({v}.flatten()[:1], (1,), (1,))
{x}.scatter_add({d}, {v}.long() * 0, {v}) | {x}.scatter_reduce({d}, {v}.long() * 0, {v}, "mean")
{x}.unflatten({d}, (1, -1)) | {x}.fliplr() | {x}.tensor_split(3, {d})[0] | torch.vstack([{x}, {x2}])
torch.dstack([{x}, {v}]) | torch.column_stack([{x}, {v}]) | torch.cdist({f}, {f}) | {x}.inner({v})
torch._foreach_add([{x}, {x2}], [{y}, {k}])[0] | torch._foreach_norm([{f}, {f}])[0]
torch._foreach_pow([{x}], 2)[0] | torch._foreach_sqrt([{f}])[0] | torch.result_type({x}, {y})
torch.linalg.norm({f}) | torch.linalg.vector_norm({f}, 1, {d}) | torch.linalg.det({f} @ {v}.mT)
torch.linalg.matrix_power({x}, 2) | {f}.logsumexp(({d},)) | {x}.std_mean()[1] | {e}.msort()
torch.nn.functional.hardswish({f})
torch.nn.functional.smooth_l1_loss({f}, {v} * 2, reduction="sum")
torch.nn.functional.kl_div({f}, {v}.abs()) | torch.nn.functional.unfold({f}, 1) | {i}.bitwise_not()
torch.nn.functional.batch_norm({f}, None, None, training=True)
torch.nn.functional.instance_norm({f})
torch.stft({f}.flatten(), 4, return_complex=True) | torch.fft.fft({x}, dim={d}).abs()
{x}.conj_physical()
"""
TRANSFORMS = """
torch.func.grad(lambda q: (q * q).sum())({f}) | torch.func.vmap(lambda q: q * 2 + q.sum())({x})
torch.func.vmap(lambda q: q.cumsum(0), in_dims={d})({x})
torch.func.jvp(torch.sin, ({f},), ({v},))[1]
torch.func.jacrev(lambda q: q.square())({g}.flatten()[:3])
torch.func.vjp(torch.tanh, {f})[1]({v})[0]
torch.func.jacfwd(lambda q: q * q.sum())({g}.flatten()[:3]) + 0.0
torch.func.vmap(torch.dot)({x}, {v})
torch.func.hessian(lambda q: (q ** 3).sum())({g}.flatten()[:3]).clone()
torch.func.vmap(torch.func.grad(lambda q: q.square().sum()))({f})
torch.func.linearize(torch.sin, {f})[0]
torch.func.vmap(lambda q: torch.where(q > 0, q, -q).sum())({e})
torch.func.vmap(lambda q: q[{lead}[0]])({x})
torch.func.grad_and_value(lambda q: q.sin().sum())({f})[0]
torch.func.functionalize(lambda q: q.clone().add_(1))({x})
torch.func.vmap(lambda q: q.clone().mul_(2))({x})
torch.func.vmap(torch.softmax, (0, None))({f}, 0)
torch.autograd.functional.jacobian(lambda q: q * q, {f}.flatten()[:3])
torch.autograd.functional.hvp(lambda q: (q ** 3).sum(), {g}, {v})[1] | H.dual(torch.tanh, {f})
torch.autograd.functional.vjp(lambda q: q.sin(), {f}, {v})[1]
H.checkpointed(lambda q: q.sin() * q, {f})
H.Scaled.apply({f}) | H.Scaled.apply({r}) | H.checkpointed(lambda q: (q * q).tanh(), {r})
H.Shifted.apply({f} * 1)
H.second({r}, {leaf})
torch.autograd.grad({r}, {leaf}, {v} * 2, allow_unused=True, retain_graph=True)[0]
H.first({r}, {leaf})
H.inference(lambda: {x} * 2) | H.quiet(lambda: {x}.clone())
H.autocasted(lambda: {f} @ {v}.mT, device)
H.autocasted(lambda: torch.nn.functional.linear({f}, {v}), device)
H.autocasted(lambda: {f} * 2, device)
H.copied({x}.detach()) | H.copied({leaf}) | H.hooked({r}) | {leaf}.grad | H.tried(lambda: {x} * 2)
"""
# Lines that say the same about any device's random numbers.
DRAWS = """
H.drawn(lambda: torch.rand_like({f})) | H.drawn(lambda: torch.randn({v}.shape, device=device))
H.drawn(lambda: torch.nn.functional.dropout({f}, 0.5))
H.drawn(lambda: torch.randperm(5, device=device))
H.drawn(lambda: torch.bernoulli({f}.sigmoid())) | H.drawn(lambda: {f}.detach().clone().normal_())
H.drawn(lambda: torch.randint(0, 5, (3,), device=device))
H.drawn(lambda: {x}.detach().clone().random_(0, 3))
H.drawn(lambda: {f}.detach().clone().exponential_())
H.drawn(lambda: torch.multinomial({f}.abs() + 1, 1))
torch.nn.functional.dropout({f}, 0.0) | torch.nn.functional.dropout({f}, 1.0)
torch.bernoulli({x} == {x})
torch.manual_seed(3) and None | H.drawn(lambda: torch.normal({f}, 1.0))
torch.nn.functional.dropout({f}, 0.9, False)
"""
EVENTS = """
[{r}.grad_fn, {r}.register_hook(lambda g: g * 2)]
{r}.sum().abs().backward(retain_graph=True) | {r}.retain_grad()
{r}.square().sum().abs().backward(retain_graph=True) | {leaf}.grad = None | {leaf}.grad.zero_()
torch.autograd.backward([{r}.sum().abs()], inputs=[{leaf}], retain_graph=True) | {leaf}.grad.mul_(2)
{r}.backward({v}.detach().clone(), retain_graph=True) | {leaf}.grad = {v}.detach() * 2
H.tried(lambda: {w}.add_({v}.new_ones(7, 7, 7))) | H.tried(lambda: {w}.add_(1).view(-7))
{w}.detach_()
H.tried(lambda: {w}.mul_(2).sum().view(5)) | {leaf}.data.mul_(2) | {leaf}.detach().add_(1)
{leaf}.register_hook(lambda g: g.clone()) | {leaf}.register_post_accumulate_grad_hook(H.scale_grad)
"""
READING_EVENTS = """
H.saved({x}) | {x} * 2 if {e}.sum().item() > 0 else {x} - 1 | {x} if bool(({e} > 0).any()) else -{x}
[q * 2 for q in {x}.detach()][-1] | {x}[: int({e}.abs().sum().item()) % 3]
{x} * {e}.flatten()[0].item()
sum(float(q) for q in {e}.flatten()) | {x}.cpu().add(1).to(device)
{x}.detach().numpy(force=True).shape
torch.tensor({e}.tolist(), device=device) | max({e}.flatten().tolist(), default=0) | repr({x}.shape)
{x}.repeat(int({e}.count_nonzero()) % 3 + 1, *{ones2}) | H.through_numpy({x})
{e}.unique().numel() | {e}.nonzero().shape | str({e}.dtype)
{x}.detach().to("cpu", copy=True).to(device)
"""
# Not for functions: what other threads do is no part of them.
THREADS = """
H.elsewhere(lambda: {x} * 2) | H.elsewhere(lambda: {w}.add_({k})) | H.elsewhere(lambda: {x}[{I}])
H.elsewhere(lambda: {w}[{I}].zero_()) | H.elsewhere(lambda: {e}.tolist())
H.elsewhere(lambda: H.first({r}, {leaf}))
"""


def parse(text: str) -> list[str]:
    return [part.strip() for part in re.split(r" \| |\n", text) if part.strip()]


# A template, its chance, whether its result gets a name.
TABLES = [
    (parse(VIEWS), 26, True),
    (parse(MORE_VIEWS), 10, True),
    (parse(WRITES), 30, False),
    (parse(MORE_WRITES), 18, False),
    (parse(OUTS), 8, False),
    (parse(ELEMENTWISE), 16, True),
    (parse(MORE_VALUES), 14, True),
    (parse(REDUCTIONS), 9, True),
    (parse(SHAPES), 14, True),
    (parse(READS), 3, True),
    (parse(READING_EVENTS), 3, True),
    (parse(GRADIENTS), 6, True),
    (parse(TRANSFORMS), 8, True),
    (parse(DRAWS), 2, True),
    (parse(EVENTS), 6, False),
    (parse(THREADS), 1, True),
]
READING = (
    "{R}",
    "{M}] ",
    "nonzero",
    "masked_select",
    "masked_scatter",
    "bincount",
    "unique",
    "to_sparse",
)
READING += (".item()", ".tolist()", "bool(", "int(", "equal(", "[{M}]", "histc", "one_hot")
READING += (
    "unique",
    "nonzero",
    "argwhere",
    "cartesian",
    "embedding",
    "[{b}]",
    "> 0]",
    "nanquantile",
)
READING += tuple(parse(READING_EVENTS)) + tuple(parse(DRAWS))
PLAIN = ("H.elsewhere", "H.drawn", "manual_seed", "H.saved", "scale_grad")
