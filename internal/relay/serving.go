package relay

import (
	"time"

	"tributary/config"
	"tributary/server/transport"
	"tributary/server/xds"
)

// limits are those of the configuration as the engine takes them.
func limits(l config.Limits) xds.Limits {
	return xds.Limits{
		StartingStreams: l.StartingStreams, TypesPerStream: l.TypesPerStream, NamesPerStream: l.NamesPerStream, Names: l.Names,
		RequestBytes: l.RequestBytes,
	}
}

// portLimits are those of the configuration as what is in front of the engine takes them.
func portLimits(l config.Limits) transport.Limits {
	return transport.Limits{
		Streams: l.Streams, StreamsPerPeer: l.StreamsPerPeer, RequestBytes: l.RequestBytes, RequestMemory: l.RequestMemory,
		RequestsPerSecond: float64(l.RequestsPerSecond),
		RefusalDelay:      time.Duration(l.RefusalDelay), StreamsPerConnection: l.StreamsPerConnection,
		StreamsPerSecond:     float64(l.StreamsPerSecond),
		ConnectionsPerSecond: float64(l.ConnectionsPerSecond),
		HeaderBytes:          l.HeaderBytes, HandshakeTimeout: time.Duration(l.HandshakeTimeout),
		FirstRequestTimeout: time.Duration(l.FirstRequestTimeout),
		IdleConnection:      time.Duration(l.IdleConnection), StuckFor: time.Duration(l.StuckFor), ConnectionAge: time.Duration(l.ConnectionAge),
	}
}

func debounce(d config.Debounce) xds.Debounce {
	return xds.Debounce{Quiet: time.Duration(d.Quiet), Max: time.Duration(d.Max)}
}

// pacing is that of the configuration as the engine takes it, where zero is the default and not none.
func pacing(p config.Pacing) xds.Pacing {
	least := time.Duration(0)
	if p.Least != nil {
		if least = time.Duration(*p.Least); least == 0 {
			least = -1
		}
	}
	return xds.Pacing{Least: least, Most: time.Duration(p.Most)}
}
