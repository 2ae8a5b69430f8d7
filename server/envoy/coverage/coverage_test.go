package coverage

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"
)

var update = flag.Bool("update", false, "write the table of docs/fields.md")

var translatedKinds = []proto.Message{
	&networking.ServiceEntry{}, &networking.WorkloadEntry{}, &networking.DestinationRule{}, &networking.VirtualService{},
	&securityv1beta1.AuthorizationPolicy{}, &securityv1beta1.RequestAuthentication{},
	&networking.Gateway{}, &networking.Sidecar{}, &networking.WorkloadGroup{},
	&networking.EnvoyFilter{}, &extensionsv1alpha1.WasmPlugin{},
	&telemetryv1alpha1.Telemetry{}, &networkingv1beta1.ProxyConfig{}, &meshv1alpha1.MeshConfig{},
	&securityv1beta1.PeerAuthentication{},
}

// Each field of each message in a translated kind is declared exactly once, and no other fields are declared.
func TestFields_Declared(t *testing.T) {
	remaining := maps.Clone(declarations())
	for _, kind := range translatedKinds {
		eachMessage(kind.ProtoReflect().Descriptor(), func(descriptor protoreflect.MessageDescriptor) {
			declaration, ok := declarations()[descriptor.FullName()]
			require.True(t, ok, "%s is not declared", descriptor.FullName())
			delete(remaining, descriptor.FullName())
			names := strings.Fields(declaration.Translated)
			for _, part := range []map[string]string{declaration.Meaningless, declaration.Unsupported} {
				for _, list := range part {
					names = append(names, strings.Fields(list)...)
				}
			}
			var fields []string
			for i := range descriptor.Fields().Len() {
				fields = append(fields, descriptor.Fields().Get(i).JSONName())
			}
			require.ElementsMatch(t, fields, names, "%s", descriptor.FullName())
		})
	}
	require.Empty(t, remaining)
}

// eachMessage calls f with a message and all messages inside it, except those in fields without effect.
func eachMessage(descriptor protoreflect.MessageDescriptor, f func(protoreflect.MessageDescriptor)) {
	seen := make(map[protoreflect.FullName]bool)
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(descriptor protoreflect.MessageDescriptor) {
		if seen[descriptor.FullName()] || descriptor.ParentFile().Package() == "google.protobuf" {
			return
		}
		seen[descriptor.FullName()] = true
		f(descriptor)
		for i := range descriptor.Fields().Len() {
			field := descriptor.Fields().Get(i)
			d := declarations()[descriptor.FullName()]
			if reason(d.Unsupported, field.JSONName())+reason(d.Meaningless, field.JSONName()) != "" {
				continue
			}
			if field.IsMap() {
				field = field.MapValue()
			}
			if field.Message() != nil {
				visit(field.Message())
			}
		}
	}
	visit(descriptor)
}

// The table in docs/fields.md is that of the declarations.
func TestTable(t *testing.T) {
	const file, begin, end = "../../../docs/fields.md", "<!-- fields: begin -->\n", "<!-- fields: end -->"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + table() + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "go test ./server/envoy -run TestTable -update")
}

func table() string {
	var builder strings.Builder
	builder.WriteString("| message | has effect | has none |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(declarations())) {
		declaration := declarations()[name]
		withoutEffect := rows("**`%s`**: %s", declaration.Unsupported)
		withoutEffect = append(withoutEffect, rows("`%s`: %s", declaration.Meaningless)...)
		var translated string
		if declaration.Translated != "" {
			translated = "`" + strings.ReplaceAll(declaration.Translated, " ", "` `") + "`"
		}
		message := strings.TrimPrefix(strings.TrimPrefix(string(name), "istio."), "networking.v1alpha3.")
		fmt.Fprintf(&builder, "| %s | %s | %s |\n", message, translated, strings.Join(withoutEffect, "; "))
	}
	return builder.String()
}

// rows returns the fields of a part of a declaration and their reasons, in order of the fields.
func rows(format string, part map[string]string) (texts []string) {
	var fields []string
	for _, list := range part {
		fields = append(fields, strings.Fields(list)...)
	}
	slices.Sort(fields)
	for _, field := range fields {
		texts = append(texts, fmt.Sprintf(format, field, reason(part, field)))
	}
	return texts
}

// reason returns the reason of a field in a part of a declaration, or "".
func reason(part map[string]string, field string) string {
	for text, fields := range part {
		if slices.Contains(strings.Fields(fields), field) {
			return text
		}
	}
	return ""
}
