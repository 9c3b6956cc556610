//! A precision variant as data: which operand is rounded to what, on which unit, in which order.
