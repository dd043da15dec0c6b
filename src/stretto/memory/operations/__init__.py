"""Operations that need a form of their own before they can be planned: in-place, random, recurrent, experts, fused."""
