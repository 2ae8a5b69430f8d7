package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"tributary/config"
)

func TestLimitsAndDebounce(t *testing.T) {
	c := parsed(t, "t.yaml", `
limits: {streams: 1, streamsPerPeer: 2, typesPerStream: 3, namesPerStream: 4, names: -1, requestBytes: 65541, requestMemory: 65544, `+
		`refusalDelay: 7s,
  streamsPerConnection: 9, streamsPerSecond: 10, headerBytes: 11, handshakeTimeout: 12s, `+
		`idleConnection: 14s, connectionAge: 17m}
debounce: {quiet: 20ms}
history: {bytes: -1}
configSources: [{address: "fs:///a"}]
`)
	assert.Equal(t, config.Limits{
		Streams: 1, StreamsPerPeer: 2, TypesPerStream: 3, NamesPerStream: 4, Names: -1, RequestBytes: 65541, RequestMemory: 65544,
		RefusalDelay:         config.Duration(7 * time.Second),
		StreamsPerConnection: 9, StreamsPerSecond: 10, HeaderBytes: 11,
		HandshakeTimeout: config.Duration(12 * time.Second),
		IdleConnection:   config.Duration(14 * time.Second), ConnectionAge: config.Duration(17 * time.Minute),
	}, c.Limits)
	assert.EqualValues(t, -1, c.History.Bytes)
	assert.Equal(t, config.Debounce{Quiet: config.Duration(20 * time.Millisecond), Max: config.Duration(200 * time.Millisecond)}, c.Debounce)
}
