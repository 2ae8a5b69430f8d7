//go:build !unix

package listen

// closed calls make.
func closed(make func()) { make() }
