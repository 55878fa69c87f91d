"""How every management endpoint speaks: errors, envelope, serializers, pages."""
