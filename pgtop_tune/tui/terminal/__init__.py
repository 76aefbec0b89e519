"""The terminal itself: driver, line diff, clipboard, and everything that touches Textual's private names."""
