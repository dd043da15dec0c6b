"""Operations that are rewritten before they can be planned: in-place, random, recurrent, experts, fused chains."""
