"""The target model: weights, tokenizer, and forwards over slot caches."""
