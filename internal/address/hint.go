package address

import (
	"fmt"
	"strings"
)

// Hint adds to the error of a connection what is behind it if one side speaks TLS and the other does not. secure says that we do.
func Hint(err error, secure bool) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	says := func(signs ...string) bool {
		for _, sign := range signs {
			if strings.Contains(said, sign) {
				return true
			}
		}
		return false
	}
	switch {
	case secure && says("first record does not look like a TLS handshake", "gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w (it does not speak TLS: see tlsSettings)", err)
	case !secure && (says("malformed HTTP response", "error reading server preface") || strings.HasSuffix(said, "EOF")):
		return fmt.Errorf("%w (it may speak TLS alone: see tlsSettings)", err)
	}
	return err
}
