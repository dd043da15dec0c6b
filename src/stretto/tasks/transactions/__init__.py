"""Transactions on partitioned states: what parts send each other, and the cycle in which holders apply it."""
