package sources

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestCountersAreCollectedWhileRegistered(t *testing.T) {
	reads := &Counter{Name: "reads_total", Help: "Reads."}
	open := &Counter{Name: "open", Help: "What is open.", Falls: true}
	set := NewCounters("tributary_test_", reads, open)
	registry := prometheus.NewRegistry()
	stop, err := set.Register(registry)
	require.NoError(t, err)
	reads.Add(2)
	open.Add(3)
	open.Add(-1)
	all, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "tributary_test_open", all[0].GetName())
	require.InDelta(t, 2, all[0].GetMetric()[0].GetGauge().GetValue(), 0)
	require.Equal(t, "tributary_test_reads_total", all[1].GetName())
	require.InDelta(t, 2, all[1].GetMetric()[0].GetCounter().GetValue(), 0)
	_, err = set.Register(registry)
	require.Error(t, err, "twice at a time")
	stop()
	all, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, all)
	stop, err = set.Register(nil)
	require.NoError(t, err)
	stop()
}
