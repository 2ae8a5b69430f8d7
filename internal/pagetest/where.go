package pagetest

import "fmt"

// The packages that run blocks, each in a test of the name TestPages.
const (
	Commands  = "cmd/tributary" // with the program alone
	EndToEnd  = "e2e"           // with real peers
	Packaging = "packaging"     // with what is installed, as root
)

// where says which package runs a block.
var where = map[string]string{
	"README.md#two-commands":                                    Commands,
	"README.md#five-minutes-to-an-istiod-that-holds-your-files": Commands,

	"docs/start.md#1-install":             Packaging,
	"docs/start.md#2-say-where-consul-is": EndToEnd,
	"docs/start.md#3-start":               EndToEnd,
	"docs/start.md#4-register-a-service":  EndToEnd,
	"docs/start.md#5-point-istiod-at-it":  EndToEnd,
	"docs/start.md#6-see-that-it-has-it":  EndToEnd,
	"docs/start.md#7-see-a-change-arrive": EndToEnd,

	"docs/first-request.md#1-a-service":         EndToEnd,
	"docs/first-request.md#2-through-envoy":     EndToEnd,
	"docs/first-request.md#3-through-a-gateway": EndToEnd,
	"docs/first-request.md#4-from-grpc":         EndToEnd,

	"docs/first-mutual-tls.md#1-certificates":               EndToEnd,
	"docs/first-mutual-tls.md#2-a-service-and-its-policies": EndToEnd,
	"docs/first-mutual-tls.md#3-the-services-envoy":         EndToEnd,
	"docs/first-mutual-tls.md#4-the-callers-envoy":          EndToEnd,
	"docs/first-mutual-tls.md#4-the-callers-envoy 2":        EndToEnd,

	"docs/doctor.md#init":                                         Commands,
	"docs/doctor.md#doctor":                                       Commands,
	"docs/history.md#history":                                     Commands,
	"docs/history.md#history 2":                                   Commands,
	"docs/history.md#history 3":                                   Commands,
	"docs/verify.md#does-istiod-really-have-it":                   EndToEnd,
	"docs/verify.md#does-an-envoy-really-have-it":                 EndToEnd,
	"sources/consulkv/README.md#rules-in-consuls-key-value-store": EndToEnd,

	"docs/clients/istiod.md#connect-it": Commands,
	"docs/clients/grpc.md#connect-it":   Commands,
	"docs/clients/grpc.md#connect-it 2": Commands,

	"docs/commands.md#tributary-access-check":  Commands,
	"docs/commands.md#tributary-apply":         EndToEnd,
	"docs/commands.md#tributary-bootstrap":     Commands,
	"docs/commands.md#tributary-bundle":        Commands,
	"docs/commands.md#tributary-config":        Commands,
	"docs/commands.md#tributary-delete":        EndToEnd,
	"docs/commands.md#tributary-diff":          Commands,
	"docs/commands.md#tributary-doctor":        EndToEnd,
	"docs/commands.md#tributary-edit":          EndToEnd,
	"docs/commands.md#tributary-explain":       Commands,
	"docs/commands.md#tributary-get":           EndToEnd,
	"docs/commands.md#tributary-guard-list":    Commands,
	"docs/commands.md#tributary-guard-release": Commands,
	"docs/commands.md#tributary-history":       Commands,
	"docs/commands.md#tributary-init":          Commands,
	"docs/commands.md#tributary-client-kick":   Commands,
	"docs/commands.md#tributary-log-level":     Commands,
	"docs/commands.md#tributary-reload":        Commands,
	"docs/commands.md#tributary-schema":        Commands,
	"docs/commands.md#tributary-serve":         Commands,
	"docs/commands.md#tributary-status":        Commands,
	"docs/commands.md#tributary-token-new":     Commands,
	"docs/commands.md#tributary-validate":      Commands,
	"docs/commands.md#tributary-verify":        EndToEnd,
	"docs/commands.md#tributary-watch":         Commands,
}

// Of are the blocks that a package runs, by their IDs, of the repository at root.
func Of(root, runner string) (map[string]Block, error) {
	blocks, err := Blocks(root)
	if err != nil {
		return nil, err
	}
	byPlace := make(map[string]Block)
	for _, b := range blocks {
		if where[b.ID] == runner {
			byPlace[b.ID] = b
		}
	}
	if len(byPlace) == 0 {
		return nil, fmt.Errorf("no page has a block for %s", runner)
	}
	return byPlace, nil
}
