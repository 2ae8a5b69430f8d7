package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestEureka(t *testing.T) {
	c := parsed(t, "t.yaml", `configSources:
- address: eureka+https://me:word@e1,e2:8762/eureka?backup=e3
  apps: [ORDERS]
  hold: 1m
  region: east
  secureServicePort: 443
`)
	first := c.ConfigSources[0]
	settings := first.Settings.(*config.Eureka).Source()
	require.Equal(t, []string{"ORDERS"}, settings.Apps)
	require.Equal(t, time.Minute, settings.Hold)
	require.Equal(t, "east", settings.Mapping.Region)
	require.Equal(t, 443, settings.Mapping.SecureServicePort)
	require.Equal(t, "eureka", first.Name)
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
	c := parsed(t, "t.yaml", "configSources: [{address: 'eureka://me:word@h1:8761'}]")
	require.Equal(t, "h1-8761", c.ConfigSources[0].Name)
}
