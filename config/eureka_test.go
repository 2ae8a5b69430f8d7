package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestEureka(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte(`configSources:
- address: eureka+https://me:word@e1,e2:8762/eureka?backup=e3
  apps: [ORDERS]
  hold: 1m
  region: east
  secureServicePort: 443
`))
	require.NoError(t, err)
	first := c.ConfigSources[0]
	settings := first.Settings.(*config.Eureka).Source()
	require.Equal(t, []string{"ORDERS"}, settings.Apps)
	require.Equal(t, time.Minute, settings.Hold)
	require.Equal(t, "east", settings.Mapping.Region)
	require.Equal(t, 443, settings.Mapping.SecureServicePort)
	require.Equal(t, "eureka", first.Name)

	for source, message := range map[string]string{
		"{address: 'eureka://'}":         "configSources[0].address: nothing after",
		"{address: 'eureka://a:b'}":      "configSources[0].address: want host:port",
		"{address: 'eureka://a?zone=b'}": "configSources[0].address: unknown parameter",
		"{address: 'eureka://a/eureka/apps'}": "configSources[0].address: the path is that of the API, such as " +
			"/eureka; /apps, which is below it, is added",
		"{address: 'eureka://me@a/eureka'}":                      "configSources[0].address: the user has no password",
		"{address: 'eureka://a', credentialsFile: /nonexistent}": "configSources[0].credentialsFile: open /nonexistent: no such file",
		"{address: 'eureka://a', groups: [g]}": "configSources[0].groups: not for eureka addresses, but for " +
			"nacos?kind=services",
		"{address: 'eureka://a', hold: -1s}":                                  "hold",
		"{address: 'eureka://a', tlsSettings: {mode: MUTUAL}}":                "configSources[0].tlsSettings",
		"{address: 'eureka+https://a', tlsSettings: {mode: DISABLE}}":         "configSources[0].tlsSettings: mode: the address asks for TLS",
		"{address: 'eureka://u:p@a', credentialsFile: f}":                     "configSources[0].credentialsFile",
		"{address: 'eureka://a', hostTemplate: '{service}'}":                  "configSources[0].hostTemplate",
		"{address: 'eureka://a', apps: ['[']}":                                "configSources[0].apps",
		"{address: 'eureka://a', statuses: [up]}":                             "configSources[0].statuses",
		"{address: 'eureka://a', addressFrom: name}":                          "configSources[0].addressFrom",
		"{address: 'eureka://a', servicePort: 70000}":                         "configSources[0].servicePort",
		"{address: 'eureka://a', servicePort: 80, secureServicePort: 80}":     "configSources[0].secureServicePort",
		"{address: 'eureka://a', vips: some}":                                 "configSources[0].vips",
		"{address: 'eureka://a', labelMeta: ['-']}":                           "configSources[0].labelMeta",
		"{address: 'eureka://a', interval: 1h}":                               "configSources[0].interval",
		"{address: 'eureka://a', namespace: 'Not one'}":                       "configSources[0].namespace",
		"{address: 'eureka://a', region: 'Not one'}":                          "configSources[0].region",
		"{address: 'eureka://a', defaultProtocol: dubbo, namespace: default}": "configSources[0].defaultProtocol",
	} {
		_, err := config.Parse("t.yaml", []byte("configSources: ["+source+"]"))
		require.ErrorContains(t, err, message, source)
	}
}

// TestShown_NoCredentials has users and passwords in addresses. They appear in no name, message or file name, and do
// not make another source.
func TestShown_NoCredentials(t *testing.T) {
	for address, want := range map[string]string{
		"eureka://me:word@h1:8761,h2/eureka?backup=h3":                    "eureka://h1:8761,h2/eureka?backup=h3",
		"eureka://me:w@rd@h1":                                             "eureka://h1",
		"zookeeper://me:word@h:2181?backup=h2":                            "zookeeper://h:2181?backup=h2",
		"nacos://h?kind=services&username=me&password=word&namespace=a@b": "nacos://h?kind=services&namespace=a@b",
		"fs:///a@b/c":   "fs:///a@b/c",
		"fs://./a@b":    "fs://./a@b",
		"xds://h:16010": "xds://h:16010",
	} {
		source := config.Source{Address: address, Settings: new(config.Eureka)}
		shownSource := config.Source{Address: want, Settings: new(config.Eureka)}
		require.Equal(t, want, source.Shown())
		require.Equal(t, shownSource.Reading(), source.Reading())
	}
	c, err := config.Parse("t.yaml", []byte("configSources: [{address: 'eureka://me:word@h1:8761'}]"))
	require.NoError(t, err)
	require.Equal(t, "h1-8761", c.ConfigSources[0].Name)
	for _, address := range []string{
		"eureka://me:word@h1:x", "zookeeper://me:wo/rd@h1", "zookeeper://me:wo?rd@h1", "zookeeper://me:1/word@h1",
		"zookeper://me:word@h1",
	} {
		_, err = config.Parse("t.yaml", []byte("configSources: [{address: '"+address+"'}]"))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "me:", address)
	}
}
