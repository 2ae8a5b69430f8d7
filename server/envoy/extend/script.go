package extend

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	"github.com/yuin/gopher-lua/parse"
	"google.golang.org/protobuf/proto"

	"tributary/server/envoy/model"
)

// beyondLua matches scripts that may use syntax of LuaJIT that Lua 5.1 does not have: its numbers, and letters
// beyond ASCII.
var beyondLua = regexp.MustCompile(`(?i)[0-9a-f.](u?ll|i)\b|\b0[xb]|[^\x00-\x7f]`)

// invalidScript reports why Envoy would refuse the syntax of a Lua script in a message.
func invalidScript(message proto.Message) (problem string) {
	check := func(script string) {
		_, err := parse.Parse(strings.NewReader(script), "script")
		if err != nil && problem == "" && !beyondLua.MatchString(script) {
			problem = "Envoy would refuse the Lua script: " + strings.Join(strings.Fields(fmt.Sprint(err)), " ")
		}
	}
	model.Visit(message, func(message proto.Message, _ bool) {
		switch message := message.(type) {
		case *luav3.Lua:
			check(message.GetInlineCode()) //nolint:staticcheck // of EnvoyFilters
			check(message.GetDefaultSourceCode().GetInlineString())
			for _, name := range slices.Sorted(maps.Keys(message.GetSourceCodes())) {
				check(message.GetSourceCodes()[name].GetInlineString())
			}
		case *luav3.LuaPerRoute:
			check(message.GetSourceCode().GetInlineString())
		}
	})
	return problem
}
