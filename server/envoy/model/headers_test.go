package model

import (
	"testing"

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
