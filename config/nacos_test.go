package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestNacos(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte(`configSources:
- address: nacos://n1:8848?backup=n2:8848&namespace=test&kind=services
  groups: [shop, DEFAULT_GROUP]
  hold: 1m
  labelMeta: [version, env]
`))
	require.NoError(t, err)
	s := c.ConfigSources[0].Settings.(*config.Nacos).Source()
	require.Equal(t, []string{"shop", "DEFAULT_GROUP"}, s.Groups)
	require.Equal(t, time.Minute, s.Hold)
	require.Equal(t, []string{"version", "env"}, s.Mapping.LabelMeta)

	for text, want := range map[string]string{
		"{address: 'nacos://a?kind=service'}": "configSources[0].address: want a parameter " +
			"kind of dubbo or services, such as nacos://host?kind=dubbo, got \"service\"",
		"{address: 'nacos://a?kind=services', hold: -1s}": "hold",
		"{address: 'nacos://a:65000?kind=services'}": "configSources[0].address: a:65000: 66000 " +
			"is no port for gRPC",
		"{address: 'nacos://a:b?kind=services'}":                            "configSources[0].address",
		"{address: 'nacos://a?kind=services', tlsSettings: {mode: MUTUAL}}": "configSources[0].tlsSettings",
		"{address: 'nacos://a?kind=services', registerMode: all}": "configSources[0].registerMode: not for " +
			"nacos addresses, but for consul?kind=dubbo and zookeeper and nacos?kind=dubbo",
		"{address: 'nacos://a?kind=services', hostTemplate: '{service}'}":                         "configSources[0].hostTemplate",
		"{address: 'nacos://a?kind=services', services: ['[']}":                                   "configSources[0].services",
		"{address: 'nacos://a?kind=services', groups: ['']}":                                      "configSources[0].groups: one has no name",
		"{address: 'nacos://a?kind=services', defaultProtocol: dubbo}":                            "configSources[0].defaultProtocol",
		"{address: 'nacos://a?kind=services', servicePort: 70000}":                                "configSources[0].servicePort",
		"{address: 'nacos://a?kind=services', vips: some}":                                        "configSources[0].vips",
		"{address: 'nacos://a?kind=services', labelMeta: ['-']}":                                  "configSources[0].labelMeta",
		"{address: 'nacos://a?kind=services', interval: 1h}":                                      "configSources[0].interval",
		"{address: 'nacos://user:secret@:8848?kind=services&grpcOffset=x'}":                       "configSources[0].address",
		"{address: 'nacos://a?kind=services', namespace: 'Not one'}":                              "configSources[0].namespace",
		"{address: 'nacos://a?kind=services&namespace=x', hostTemplate: '{x}{service}{group}.a'}": "configSources[0].hostTemplate: unknown {x}",
	} {
		_, err := config.Parse("t.yaml", []byte("configSources: ["+text+"]"))
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret")
	}
}
