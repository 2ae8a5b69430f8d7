package extend

import (
	"fmt"
	"strconv"
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
)

// A script is left out if LuaJIT is sure to refuse its syntax.
func TestInvalidScript(t *testing.T) {
	for script, invalid := range map[string]bool{
		"": false, "function envoy_on_request(h) end": false, "local x = 'a' .. [[b]] -- c": false, "goto x ::x::": false,
		"x = 1LL + 2ull + 3i + 0xff + 0x1p4 + 0b11": false, "ä = 1": false, "x = '\\x41\\z  a'": false, "break": false,
		"for i = 1, 2 do if i then goto continue end ::continue:: end": false,
		"function envoy_on_request(h)":                                 true,
		"x =":                                                          true, "x = 'a": true, "if x then": true, "end": true, "x = 3 // 4": true,
		"local x <const> = 1": true, "{}": true, "a b": true, "#!/x": true, "goto = 1": true,
	} {
		for _, where := range []string{"inline_code: %s", "default_source_code: {inline_string: %s}", "source_codes: {a: {inline_string: %s}}"} {
			config := fmt.Sprintf(where, strconv.Quote(script))
			problem := invalidScript(read(t, &hcmv3.HttpFilter{}, `{name: a, typed_config: {"@type": `+types+"http.lua.v3.Lua, "+config+"}}"))
			require.Equal(t, invalid, problem != "", "%s: %s", config, problem)
		}
	}
}
