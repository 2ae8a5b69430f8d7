package translate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShorterNames(t *testing.T) {
	t.Parallel()
	for host, want := range map[string][]string{
		"echo.shop.svc.cluster.local":  {"echo", "echo.shop", "echo.shop.svc"},
		"echo.other.svc.cluster.local": {"echo.other", "echo.other.svc"},
		"echo.shop.svc.east.example":   {"echo", "echo.shop", "echo.shop.svc"},
		"a.echo.shop.svc.example":      nil,
		"*.shop.svc.cluster.local":     nil,
		"shop.svc.cluster.local":       nil,
		".shop.svc.cluster.local":      nil,
		"echo..svc.cluster.local":      nil,
		"reviews.internal":             nil,
		"echo":                         nil,
	} {
		require.Equal(t, want, shorterNames(host, "shop"), host)
	}
}
