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
limits: {streams: 1, streamsPerPeer: 2, typesPerStream: 3, namesPerStream: 4, names: -1, requestBytes: 65541, requestMemory: 65544, `+
		`refusalDelay: 7s,
  streamsPerConnection: 9, streamsPerSecond: 10, headerBytes: 11, handshakeTimeout: 12s, `+
		`idleConnection: 14s, connectionAge: 17m}
debounce: {quiet: 20ms}
configSources: [{address: "fs:///a"}]
`))
	require.NoError(t, err)
	assert.Equal(t, config.Limits{
		Streams: 1, StreamsPerPeer: 2, TypesPerStream: 3, NamesPerStream: 4, Names: -1, RequestBytes: 65541, RequestMemory: 65544,
		RefusalDelay:         config.Duration(7 * time.Second),
		StreamsPerConnection: 9, StreamsPerSecond: 10, HeaderBytes: 11,
		HandshakeTimeout: config.Duration(12 * time.Second),
		IdleConnection:   config.Duration(14 * time.Second), ConnectionAge: config.Duration(17 * time.Minute),
	}, c.Limits)
	assert.Equal(t, config.Debounce{Quiet: config.Duration(20 * time.Millisecond), Max: config.Duration(200 * time.Millisecond)}, c.Debounce)
}

func TestRequestBytes_WithinRequestMemory(t *testing.T) {
	for limits, says := range map[string]string{
		"requestBytes: 67108865": "t.yaml:1:24: limits.requestBytes: want at most limits.requestMemory, 67108864 " +
			"if it is not given, got 67108865",
		"requestBytes: -1": "t.yaml:1:24: limits.requestBytes: want at most limits.requestMemory, 67108864 " +
			"if it is not given, got -1",
		"requestBytes: 67108864":                          "",
		"requestBytes: 67108865, requestMemory: 67108865": "",
		"requestBytes: -1, requestMemory: -1":             "",
	} {
		_, err := config.Parse("t.yaml", []byte("limits: {"+limits+"}\nconfigSources: [{address: 'fs:///a'}]\n"))
		if says == "" {
			require.NoError(t, err, limits)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
}

func TestLimits_Invalid(t *testing.T) {
	_, err := config.Parse("t.yaml", []byte(`
limits:
  streams: -2
  refusalDelay: -1s
  streamsPerConnection: -2
  streamsPerSecond: -2
  headerBytes: -2
  handshakeTimeout: -1s
  idleConnection: -1s
  requestBytes: 10
  requestMemory: 5
pacing: {least: 5s, most: 1s}
debounce: {quiet: 1s, max: 1ms}
configSources: [{address: "fs:///a"}]
`))
	require.Error(t, err)
	for _, want := range []string{
		"t.yaml:3:12: limits.streams: want -1 for no limit, or more",
		"t.yaml:4:17: limits.refusalDelay: want 0 or more",
		"t.yaml:5:25: limits.streamsPerConnection: want -1 for no limit, or more",
		"t.yaml:6:21: limits.streamsPerSecond: want -1 for no limit, or more",
		"t.yaml:7:16: limits.headerBytes: want -1 for no limit, or more",
		"t.yaml:8:21: limits.handshakeTimeout: want 0 or more",
		"t.yaml:9:19: limits.idleConnection: want 0 or more",
		"t.yaml:10:17: limits.requestBytes: want at least 65536, got 10",
		"t.yaml:11:18: limits.requestMemory: want at least limits.requestBytes, 10, got 5",
		"t.yaml:12:17: pacing.least: want at most pacing.most, 1s, got 5s",
		"debounce.max: want at least debounce.quiet, which is 1s, got 1ms",
	} {
		assert.Contains(t, err.Error(), want)
	}
}
