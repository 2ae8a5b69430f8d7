package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestLimitsAndDebounce(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte(`
limits: {streams: 1, streamsPerPeer: 2, typesPerStream: 3, namesPerStream: 4, names: -1, requestBytes: 5, requestMemory: 8, requestsPerSecond: 6, refusalDelay: 7s}
debounce: {quiet: 20ms}
configSources: [{address: "fs:///a"}]
`))
	require.NoError(t, err)
	assert.Equal(t, config.Limits{
		Streams: 1, StreamsPerPeer: 2, TypesPerStream: 3, NamesPerStream: 4, Names: -1, RequestBytes: 5, RequestMemory: 8, RequestsPerSecond: 6,
		RefusalDelay: config.Duration(7 * time.Second),
	}, c.Limits)
	assert.Equal(t, config.Debounce{Quiet: config.Duration(20 * time.Millisecond), Max: config.Duration(200 * time.Millisecond)}, c.Debounce)
}

func TestLimitsThatMakeNoSense(t *testing.T) {
	_, err := config.Parse("t.yaml", []byte(`
limits:
  streams: -2
  refusalDelay: -1s
debounce: {quiet: 1s, max: 1ms}
configSources: [{address: "fs:///a"}]
`))
	require.Error(t, err)
	for _, want := range []string{
		"t.yaml:3:12: limits.streams: want -1 for no limit, or more",
		"t.yaml:4:17: limits.refusalDelay: want 0 or more",
		"debounce.max: want at least debounce.quiet, which is 1s, got 1ms",
	} {
		assert.Contains(t, err.Error(), want)
	}
}
