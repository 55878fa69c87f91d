"""HTTP/1.1 towards clients: requests read by llhttp, answers written in as few pieces as they allow."""
