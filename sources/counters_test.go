package sources

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestCounters_CollectedWhileRegistered(t *testing.T) {
	reads := &Counter{Name: "reads_total", Help: "Reads."}
	open := &Counter{Name: "open", Help: "What is open.", Falls: true}
	counterSet := NewCounters("tributary_test_", reads, open)
	registry := prometheus.NewRegistry()
	stop, err := counterSet.Register(registry)
	require.NoError(t, err)
	reads.Add(2)
	open.Add(3)
	open.Add(-1)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	require.Equal(t, "tributary_test_open", families[0].GetName())
	require.InDelta(t, 2, families[0].GetMetric()[0].GetGauge().GetValue(), 0)
	require.Equal(t, "tributary_test_reads_total", families[1].GetName())
	require.InDelta(t, 2, families[1].GetMetric()[0].GetCounter().GetValue(), 0)
	_, err = counterSet.Register(registry)
	require.Error(t, err, "twice at a time")
	stop()
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
	stop, err = counterSet.Register(nil)
	require.NoError(t, err)
	stop()
}
