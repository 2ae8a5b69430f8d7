package address

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzParse has anything in the place of the address of a registry: it is refused, or each of its servers has a port.
func FuzzParse(f *testing.F) {
	f.Add("nacos://u:p@a:1,b/x?backup=c:2&group=g")
	f.Add("nacos://[::1]:80,[::2]?username=a&password=b")
	f.Add("nacos://a%2/b@c#d")
	f.Fuzz(func(t *testing.T, text string) {
		testutil.Cost(t, len(text), 2000, func() {
			a, err := Parse("nacos", "host:port", "8848", text)
			if err == nil {
				require.NotEmpty(t, a.Servers)
			}
			_ = Shown(text)
		})
	})
}
