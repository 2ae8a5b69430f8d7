package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestHistory(t *testing.T) {
	parse := func(text string) (*config.Config, error) {
		return config.Parse("tributary.yaml", []byte(text+"configSources: [{address: 'fs:///rules'}]\n"))
	}
	c, err := parse("")
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, c.History.Bytes)
	c, err = parse("history: {bytes: -1}\n")
	require.NoError(t, err)
	require.EqualValues(t, -1, c.History.Bytes)
	_, err = parse("history: {bytes: 1000}\n")
	require.ErrorContains(t, err, "history.bytes: want at least 1048576, or -1 for no history, got 1000")
}
