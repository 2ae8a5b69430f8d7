package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/config"
)

var update = flag.Bool("update", false, "rewrite docs/config.schema.json")

//go:generate go test . -run TestSchema_Current -update

const schemaFile = "../docs/config.schema.json"

// TestSchema_Current compares docs/config.schema.json with the structs. `go generate ./config` writes it.
func TestSchema_Current(t *testing.T) {
	data, err := json.MarshalIndent(schema(t), "", "  ")
	require.NoError(t, err)
	data = append(data, '\n')
	if *update {
		require.NoError(t, os.WriteFile(schemaFile, data, 0o644))
	}
	stored, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.Equal(t, string(data), string(stored), "run `go generate ./config`")
}

// TestSchemaAgreesWithParse checks that an editor that knows the schema says the same as the program.
func TestSchemaAgreesWithParse(t *testing.T) {
	resolved, err := schema(t).Resolve(nil)
	require.NoError(t, err)
	for text, valid := range map[string]bool{
		"configSources: [{address: 'fs:///a'}]":                                                       true,
		"configSources: [{address: 'fs:///a', rescanInterval: 1m30s, defaultNamespace: mesh}]":        true,
		"{listen: {xds: ':1'}, stateDir: s, configSources: [{address: 'fs:///a'}]}":                   true,
		"{listen: {xsd: ':1'}, configSources: [{address: 'fs:///a'}]}":                                false,
		"configSources: [{address: 'fs:///a', guard: {share: 30%, min: 5, window: 1m, holdFor: 1h}}]": true,
		"configSources: [{address: 'fs:///a', guard: off}]":                                           true,
		"configSources: [{address: 'fs:///a', guard: on}]":                                            false,
		"configSources: [{address: 'fs:///a', guard: {share: 30}}]":                                   false,
		"configSources: [{address: 'fs:///a', guard: {shares: 30%}}]":                                 false,
		"configSources: [{address: 'fs:///a', transform: {hosts: [{match: '*', to: '{1}.x'}]}}]":      true,
		"configSources: [{address: 'fs:///a', merge: endpoints}]":                                     true,
		"configSources: [{address: 'fs:///a', merge: {endpoints: {locality: eu/a, priority: 1}}}]":    true,
		"configSources: [{address: 'fs:///a', merge: routes}]":                                        false,
		"configSources: [{address: 'fs:///a', merge: {priority: 1}}]":                                 false,
		"configSources: [{address: 'fs:///a', transform: {host: []}}]":                                false,
		"configSources: [{address: 5}]":                                                               false,
		"configSources: [{name: a}]":                                                                  false,
		"configSources: [{address: 'fs:///a', rescanInterval: soon}]":                                 false,
		"configSources: [{address: 'fs:///a', mode: sotw}]":                                           false,
		"configSources: [{address: 'xds://a:1', mode: sotw}]":                                         true,
		"configSources: [{mode: sotw, address: 'xds://a:1'}]":                                         true,
		"configSources: [{address: 'ftp://a'}]":                                                       false,
		"configSources: [{address: 'consul+https://a:1', tlsSettings: {mode: SIMPLE}, stale: true}]":  true,
		"configSources: [{address: 'consul-kv://a:1/b', stale: true}]":                                false,
		"configSources: [{address: 'nacos://a?kind=services', groups: [g]}]":                          true,
		"configSources: [{address: 'nacos://a?kind=services', labelParams: [a]}]":                     false,
		"configSources: [{address: 'nacos://a', labelParams: [a]}]":                                   true,
		"configSources: [{address: 'nacos://a?kind=dubbo', groups: [g]}]":                             false,
		"configSources: [{address: 'eureka://a,b/eureka', apps: [a], region: r}]":                     true,
		"configSources: [{address: 'eureka+https://a', apps: [a], groups: [g]}]":                      false,
		"configSources: [{address: 'k8s://', namespaces: [a], kinds: [vs], labelSelector: a=b}]":      true,
		"configSources: [{address: 'k8s://', groups: [a]}]":                                           false,
		"listen: {}": false,
	} {
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value))
		_, parseErr := config.Parse("t.yaml", []byte(text))
		schemaErr := resolved.Validate(value)
		require.Equal(t, valid, parseErr == nil, "parse %s: %v", text, parseErr)
		require.Equal(t, valid, schemaErr == nil, "schema of %s: %v", text, schemaErr)
	}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	opts := &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[config.Duration](): {Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`},
		reflect.TypeFor[config.Percent]():  {Type: "string", Pattern: `^[0-9]+(\.[0-9]+)?%$`},
	}}
	guard, err := jsonschema.For[config.Guard](opts)
	require.NoError(t, err)
	off := any("off")
	annotate(guard, reflect.TypeFor[config.Guard]())
	opts.TypeSchemas[reflect.TypeFor[config.Guard]()] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Const: &off}, guard}}
	merge, err := jsonschema.For[config.Merge](opts)
	require.NoError(t, err)
	endpoints := any("endpoints")
	annotate(merge, reflect.TypeFor[config.Merge]())
	opts.TypeSchemas[reflect.TypeFor[config.Merge]()] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Const: &endpoints}, merge}}
	opts.TypeSchemas[reflect.TypeFor[config.Source]()] = sourceSchema(t, opts)
	s, err := jsonschema.For[config.Config](opts)
	require.NoError(t, err)
	annotate(s, reflect.TypeFor[config.Config]())
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "tributary configuration"
	return s
}

// sourceSchema is that of a source: which keys it may have depends on the scheme of its address.
func sourceSchema(t *testing.T, opts *jsonschema.ForOptions) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.For[config.Source](opts)
	require.NoError(t, err)
	annotate(schema, reflect.TypeFor[config.Source]())
	schema.AdditionalProperties = nil // each scheme has its own properties
	var sourceNames []string
	for _, scheme := range config.Schemes() {
		settings, err := jsonschema.ForType(reflect.TypeOf(scheme.Settings()).Elem(), opts)
		require.NoError(t, err)
		annotate(settings, reflect.TypeOf(scheme.Settings()).Elem())
		for common := range schema.Properties {
			require.NotContains(t, settings.Properties, common)
			settings.Properties[common] = &jsonschema.Schema{}
		}
		var names []string
		for _, name := range scheme.Names {
			names = append(names, regexp.QuoteMeta(name))
		}
		sourceNames = append(sourceNames, names...)
		address := &jsonschema.Schema{Pattern: addresses(names)}
		switch first := slices.IndexFunc(config.Schemes(), func(s config.Scheme) bool { return slices.Equal(s.Names, scheme.Names) }); {
		// the others of that name have kinds
		case scheme.Kind == "" && first+1 < len(config.Schemes()) && slices.Equal(config.Schemes()[first+1].Names, scheme.Names):
			address.Not = &jsonschema.Schema{Pattern: `[?&]kind=`}
		case scheme.Kind == "":
		case config.Schemes()[first].Kind == scheme.Kind: // which goes without saying
			sameKind := &jsonschema.Schema{Pattern: kindIs(scheme.Kind)}
			address = &jsonschema.Schema{
				Pattern: address.Pattern,
				AnyOf:   []*jsonschema.Schema{{Not: &jsonschema.Schema{Pattern: `[?&]kind=`}}, sameKind},
			}
		default:
			address.AllOf = []*jsonschema.Schema{{Pattern: kindIs(scheme.Kind)}}
		}
		schema.AllOf = append(schema.AllOf, &jsonschema.Schema{
			If:   &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"address": address}},
			Then: settings,
		})
	}
	slices.Sort(sourceNames)
	sourceNames = slices.Compact(sourceNames)
	schema.Properties["address"].Pattern = addresses(sourceNames)
	return schema
}

// kindIs is a pattern of addresses that name a kind.
func kindIs(kind string) string { return `[?&]kind=` + regexp.QuoteMeta(kind) + `(&|$)` }

// addresses is a pattern of the addresses of schemes.
func addresses(names []string) string { return "^(" + strings.Join(names, "|") + ")://" }
