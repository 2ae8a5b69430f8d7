package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/binary"
	"tributary/server/envoy/envoytest"
)

// wrongTexts are values that Istio's validation takes in some field, and that Envoy might reject there.
var wrongTexts = []string{
	"", " ", "a b", "a\nb", "a\x00b", "é", "*", "%", "%%", "%REQ(", "%REQ()%", "%NOTHING(a):b%", ":authority", "host", "[", "(", "a{1001}",
	"(?i)a", "\\1", "\\9",
	"fe80::1%eth0", "::ffff:10.0.0.1", "0.0.0.0", "10.0.0.0/33", "10.0.0.1/8", "a..b", "-a", "*.*", "http://a", "/", "//", "/a?b#c", "unix://",
	"5xx,nothing",
	strings.Repeat("a", 300), strings.Repeat("a.", 130) + "a", strings.Repeat("(a|b)", 40),
}

// wrongNumbers are such numbers.
var wrongNumbers = []int64{
	0, 1, -1, 2, 99, 100, 101, 599, 600, 65535, 65536, math.MaxInt32, math.MinInt32, math.MaxUint32, math.MaxInt64,
	math.MinInt64, 999_999_999,
}

// A real Envoy accepts the resources of configurations that are made to be rejected: in each, one set field has another
// value that passes Istio's validation.
func TestEnvoy_AcceptsUnusualValues(t *testing.T) {
	t.Parallel()
	want := byNight(10, 280)
	count := 0
	for seed := uint64(0); count < want; seed++ {
		mesh := envoytest.New(seed)
		for range 12 {
			mesh.Change()
		}
		table, change := wrongOne(t, slices.Collect(mesh.Table.Snapshot().All()), seed)
		if table == nil {
			continue
		}
		count++
		for i, resources := range servedTo(t, table, envoytest.Nodes[count%2:][:1]) {
			rejections, err := binary.Check(t.Context(), fixture.EnvoyBinary(t), resources)
			require.NoError(t, err)
			for _, r := range rejections {
				assert.Fail(t, "rejected", "seed %d, %s, client %d: %s: %s", seed, change, i, r.Resources, r.Text)
			}
		}
	}
}

// oddDurations are durations that Istio may take, and Envoy may not.
var oddDurations = []*durationpb.Duration{
	{Seconds: -1},
	{Nanos: -1},
	{},
	{Nanos: 1},
	{Seconds: math.MaxInt64 / 1_000_000_000},
	{Seconds: 315_576_000_000},
	{Seconds: -315_576_000_000},
}

// A real Envoy accepts the resources of policies, providers, Telemetries and EnvoyFilters with any value in one field:
// the table has the inputs that an Envoy once rejected, and each seed sets one field to a value that passes Istio's
// validation.
func TestEnvoy_AcceptsOddSecurity(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "odd", "security.yaml")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	check := func(name string, table *memstore.Table) {
		for _, served := range servedTo(t, table, envoytest.Nodes[4:5]) {
			rejections, err := binary.Check(t.Context(), fixture.EnvoyBinary(t), served)
			require.NoError(t, err)
			for _, r := range rejections {
				if !strings.Contains(r.Text, "unable to open file") { // only the Envoy's machine has it
					assert.Fail(t, "rejected", "%s: %s", name, r.Text)
				}
			}
		}
	}
	for _, change := range oddInputs {
		require.Contains(t, string(content), change[0])
		changed := testutil.WriteFile(t, t.TempDir(), "security.yaml", strings.Replace(string(content), change[0], change[1], 1))
		check(change[1], meshOf(t, decoded(t, changed)))
	}
	want := byNight(5, 400)
	for seed, count := uint64(0), 0; count < want; seed++ {
		if table, change := wrongOne(t, decoded(t, file), seed); table != nil {
			count++
			check(fmt.Sprintf("seed %d, %s", seed, change), table)
		}
	}
}

// oddInputs are texts of testdata/odd/security.yaml, and their replacements.
var oddInputs = [][2]string{
	{"http://asked.internal/keys", "http://asked.internal/a b"},
	{"http://asked.internal/keys", "http://asked.internal/a%20b?c= d"},
	{"http://asked.internal/keys", "http://asked.internal/é"},
	{"x-added: a", "x-added: 50%"},
	{"x-added: a", "x-added: '%FOO%'"},
	{"x-added: a", "x-added: '%REQ(a'"},
	{"x-added: a", "host: a"},
	{"x-added: a", "':path': a"},
	{"x-added: a", "Host: a"},
	{"timeout: 2s", "timeout: -2s"},
	{"x-key, value: a}]}}}", "x-key, value: 50%}]}}}"},
	{"x-key, value: a}]}}}", "'x-key', value: '%FOO%'}]}}}"},
	{"[{name: x-key, value: a}]}}}", "[{name: host, value: a}]}}}"},
	{"{timeout: 3s, initial", "{timeout: -3s, initial"},
	{"%REQ(:METHOD)% %RESPONSE_CODE%", "%REQ(a"},
	{"%REQ(:METHOD)% %RESPONSE_CODE%", "%FOO%"},
	{"%LOCAL_REPLY_BODY%", "%REQ(a"},
	{"{a: \"%REQ(x-a)%\"}", "{a: {b: [\"%REQ(x-a\"]}}"},
	{"%LOCAL_REPLY_BODY%", "%FOO%"},
	{"%LOCAL_REPLY_BODY%", "%DURATIONS%"},
	{"{a: \"%REQ(x-a)%\"}", "{a: {b: [\"%FOO(x-a)%\"]}}"},
	{"format: \"%PROTOCOL%\"", "format: \"%FOO%\""},
	{"format: \"%PROTOCOL%\"", "format: \"%PROTOCOL\""},
	{"format: \"%PROTOCOL%\"", "json_format: {a: \"%FOO%\"}"},
	{"format: \"%PROTOCOL%\"", "typed_json_format: {a: \"%REQ(a\"}"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle) if end"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle) x = 'a end"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle) local x <const> = 3 // 4 end"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle) goto = 1 end"},
	{"envoy_on_request(handle) end", "envoy_on_request(handle) \u00e4 = 0xffULL + 1LL + 2i + 0b11 + 0x1p4 end"},
	{"envoy_on_response(handle) end", "envoy_on_response(handle) end end"},
	{"randomSamplingPercentage: 10", "randomSamplingPercentage: NaN"},
	{"request_timeout: 5s", "tracing: {random_sampling: {value: NaN}}"},
	{"{key: x-a, value: b}", "{key: ':path', value: b}"},
	{"{key: x-a, value: b}", "{key: x-a, value: 50%}"},
	{"request_timeout: 5s", "request_timeout: -5s"},
	{"timeout: 1s, initial_metadata", "timeout: -0.5s, initial_metadata"},
}

// wrongOne returns a mesh of objects with another value in one field of one of them, and says which; nil if validation takes none.
func wrongOne(t *testing.T, objects []*resource.Resource, seed uint64) (table *memstore.Table, change string) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's
	for range 200 {
		i := rnd.IntN(len(objects))
		spec, err := objects[i].Spec()
		require.NoError(t, err)
		spec = proto.Clone(spec)
		var fields []func() string
		fieldsOf(spec.ProtoReflect(), "spec", rnd, &fields)
		if len(fields) == 0 {
			continue
		}
		edit := fields[rnd.IntN(len(fields))]()
		r, err := resource.New(objects[i].Meta(), spec)
		if err != nil {
			continue
		}
		if _, err := resource.Validate(r); err != nil {
			continue
		}
		objects[i] = r
		return meshOf(t, objects), fmt.Sprintf("%s %s", r.Key(), edit)
	}
	return nil, ""
}

// fieldsOf adds a function for each field of a message that has a value; it sets the field to a wrong one and describes
// the change.
func fieldsOf(m protoreflect.Message, path string, rnd *rand.Rand, setters *[]func() string) {
	for i := range m.Descriptor().Fields().Len() { // in order, so that a seed always makes the same change
		f := m.Descriptor().Fields().Get(i)
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		path := path + "." + f.JSONName()
		switch {
		case f.IsMap():
			if f.MapValue().Kind() == protoreflect.StringKind {
				*setters = append(*setters, func() string {
					key, value := wrongTexts[rnd.IntN(len(wrongTexts))], wrongTexts[rnd.IntN(len(wrongTexts))]
					m.Mutable(f).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
					return fmt.Sprintf("%s[%q]: %q", path, key, value)
				})
				continue
			}
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if f.MapValue().Message() != nil {
					fieldsOf(v.Message(), path, rnd, setters)
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				if f.Message() != nil {
					fieldsOf(v.List().Get(i).Message(), path, rnd, setters)
				} else if w, supported := wrongValue(f, rnd); supported {
					*setters = append(*setters, func() string { m.Mutable(f).List().Set(i, w); return fmt.Sprintf("%s[%d]: %v", path, i, w) })
				}
			}
		case f.Message() != nil && f.Message().FullName() == "google.protobuf.Duration":
			odd := oddDurations[rnd.IntN(len(oddDurations))]
			*setters = append(*setters, func() string {
				m.Set(f, protoreflect.ValueOfMessage(odd.ProtoReflect()))
				return fmt.Sprintf("%s: %v", path, odd)
			})
		case f.Message() != nil:
			fieldsOf(v.Message(), path, rnd, setters)
		default:
			if w, supported := wrongValue(f, rnd); supported {
				*setters = append(*setters, func() string { m.Set(f, w); return fmt.Sprintf("%s: %v", path, w) })
			}
		}
	}
}

func wrongValue(f protoreflect.FieldDescriptor, rnd *rand.Rand) (protoreflect.Value, bool) {
	n := wrongNumbers[rnd.IntN(len(wrongNumbers))]
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(wrongTexts[rnd.IntN(len(wrongTexts))]), true
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n)), true //nolint:gosec // any will do
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n), true
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n)), true //nolint:gosec // any will do
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n)), true //nolint:gosec // any will do
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, -1, 1e-9, 101, math.MaxFloat64, math.NaN(), math.Inf(1)}[rnd.IntN(7)]), true
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rnd.IntN(9))), true //nolint:gosec // small
	}
	return protoreflect.Value{}, false
}

// regexMesh is a service with a regular expression that an Envoy takes unless its limit is lower than usual.
const regexMesh = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: default}
spec: {hosts: [one.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: routes, namespace: default}
spec: {hosts: [one.internal], http: [{match: [{uri: {regex: "/a{1,30}"}}], route: [{destination: {host: one.internal}}]}]}
`

// A real Envoy checks the resources that would be served. The message names the resources that it rejects, with the
// objects behind them.
func TestValidateWithEnvoy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "mesh.yaml", regexMesh)
	file, strict := filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "envoy")
	run := func(envoy string) (string, int) {
		return fixture.Run(t, fixture.TributaryBinary(t), "validate", "--for", "envoy", "--envoy-binary", envoy, file)
	}
	renamed := filepath.Join(dir, "proxy-1.40")
	require.NoError(t, os.Symlink(fixture.EnvoyBinary(t), renamed))
	for _, path := range []string{fixture.EnvoyBinary(t), renamed} {
		out, code := run(path)
		require.Zero(t, code, out)
	}
	runtime := `layered_runtime: {layers: [{name: l, static_layer: {re2.max_program_size.error_level: 20}}]}`
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" --config-yaml '%s'\n", fixture.EnvoyBinary(t), runtime)
	require.NoError(t, os.WriteFile(strict, []byte(script), 0o700)) //nolint:gosec // it is to be run
	out, code := run(strict)
	require.Equal(t, 3, code, out)
	require.Contains(t, out, file+":6: VirtualService default/routes: Envoy rejects RouteConfiguration 80, made of ServiceEntry default/one")
	require.Contains(t, out, "max program size of 20")
	out, code = run("/bin/true")
	require.Equal(t, 1, code, out)
}
