"""The interface of Meta's `sam2`: same module names, arguments, types and shapes."""
