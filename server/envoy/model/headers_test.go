package model

import (
	"os"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
)

func TestFormats(t *testing.T) {
	for value, want := range map[string]bool{
		"": true, "plain": true, "50%%": true, "%REQ(x-a)%": true, "a %REQ(x-a?:path):10% b %RESPONSE_CODE%": true, "%START_TIME%": true,
		"%START_TIME(%s)%": true,
		"50%":              false, "%": false, "%NOTHING%": false, "%REQ%": false, "%REQ()%": false, "%RESPONSE_CODE(1)%": false,
		"%req(x-a)%": false, "%REQ(a?b?c)%": false,
		"%BYTES_SENT:3%": false, "%REQ(:)%": false, "%FILTER_STATE(a:X)%": false, "%FILTER_STATE(a:PLAIN)%": true,
		"%DYNAMIC_METADATA(a:b)%": true, "%REQ(x-a)": false,
	} {
		require.Equal(t, want, IsFormat(value), "%q", value)
	}
}

// TestFormatSyntax holds that an EnvoyFilter may have all commands that Envoy 1.36 or 1.40 takes, and those of formatters.
func TestFormatSyntax(t *testing.T) {
	names, err := os.ReadFile("testdata/commands.txt")
	require.NoError(t, err)
	inline := func(format string, formatters ...*corev3.TypedExtensionConfig) string {
		return InvalidPart(&corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: format},
			}}, Formatters: formatters,
		})
	}
	for name := range strings.FieldsSeq(string(names)) {
		require.Empty(t, inline("a %"+name+"% b %"+name+"(a:b):7%\n"), name)
	}
	for _, format := range []string{"%FOO%", "%FOO(a):7%", "%DURATIONS%", "%REQUE%", "%req(a)%", "50%", "%REQ(a", "%", "%%%"} {
		require.NotEmpty(t, inline(format), format)
	}
	require.Empty(t, inline("%FOO(a):7% %%", &corev3.TypedExtensionConfig{}))
	require.NotEmpty(t, inline("%FOO(a", &corev3.TypedExtensionConfig{}))
}
