package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestDubbo(t *testing.T) {
	c := parsed(t, "t.yaml", `configSources:
- address: zookeeper://zk1:2181?backup=zk2:2181&group=shop
  interfaces: [com.acme.*]
  hold: 1m
  servicePorts: {dubbo: 20000}
  labelParams: [owner]
`)
	s := c.ConfigSources[0].Settings.(*config.Dubbo).Source()
	require.Equal(t, []string{"com.acme.*"}, s.Interfaces)
	require.Equal(t, time.Minute, s.Hold)
	require.Equal(t, map[string]int{"dubbo": 20000}, s.Mapping.ServicePorts)
}
