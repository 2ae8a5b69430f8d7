package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestNacos(t *testing.T) {
	c := parsed(t, "t.yaml", `configSources:
- address: nacos://n1:8848?backup=n2:8848&namespace=test&kind=services
  groups: [shop, DEFAULT_GROUP]
  hold: 1m
  labelMeta: [version, env]
`)
	s := c.ConfigSources[0].Settings.(*config.Nacos).Source()
	require.Equal(t, []string{"shop", "DEFAULT_GROUP"}, s.Groups)
	require.Equal(t, time.Minute, s.Hold)
	require.Equal(t, []string{"version", "env"}, s.Mapping.LabelMeta)
}
