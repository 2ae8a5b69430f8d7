package config

import (
	"reflect"
	"strings"
)

// Limits protect the xDS server from its clients. What is zero has its default, and -1 is no limit. A client that exceeds a
// limit is refused with the gRPC status RESOURCE_EXHAUSTED, and counted in the metric tributary_xds_refusals_total.
type Limits struct {
	Connections          int      `json:"connections,omitempty" jsonschema:"Connections to the xDS server open at once. Default: what the process may have open (ulimit -n), less 128 for itself; -1 for no limit. Read at the start."`
	ConnectionsPerPeer   int      `json:"connectionsPerPeer,omitempty" jsonschema:"Connections to the xDS server open at once from one IP address. Default: 5000; -1 for no limit. Read at the start."`
	Streams              int      `json:"streams,omitempty" jsonschema:"Streams open at once. Default: 10000; -1 for no limit."`
	StreamsPerPeer       int      `json:"streamsPerPeer,omitempty" jsonschema:"Streams open at once from one IP address. Default: 5000; -1 for no limit."`
	StartingStreams      int      `json:"startingStreams,omitempty" jsonschema:"Streams that are served their first responses at once, while others wait their turn. Default: 16 for each processor; -1 for no limit."`
	TypesPerStream       int      `json:"typesPerStream,omitempty" jsonschema:"Types that one stream asks for. Default: 256; -1 for no limit."`
	NamesPerStream       int      `json:"namesPerStream,omitempty" jsonschema:"Resource names that one stream subscribes to, or versions that one request brings along. Default: 200000; -1 for no limit."`
	Names                int      `json:"names,omitempty" jsonschema:"Resource names that all streams subscribe to. Default: 5000000; -1 for no limit."`
	RequestBytes         int      `json:"requestBytes,omitempty" jsonschema:"Size of one request, in bytes. Default: 16777216; -1 for 1073741824."`
	RequestMemory        int      `json:"requestMemory,omitempty" jsonschema:"Memory for all requests of more than 64 KiB that are being received, in bytes; others wait. At least requestBytes. Default: 67108864; -1 for no limit."`
	RequestsPerSecond    int      `json:"requestsPerSecond,omitempty" jsonschema:"Requests of one stream, sustained; bursts of ten seconds' worth are let through. Default: 10000; -1 for no limit."`
	StreamsPerConnection int      `json:"streamsPerConnection,omitempty" jsonschema:"Streams open at once on one connection; clients leave more for another. Default: 100; -1 for no limit."`
	ConnectionsPerSecond int      `json:"connectionsPerSecond,omitempty" jsonschema:"Connections that are let in from one IP address, sustained; a tenth of a second's worth at once. Others wait, and are cut off if that would take longer than handshakeTimeout. Default: 500; -1 for no limit."`
	StreamsPerSecond     int      `json:"streamsPerSecond,omitempty" jsonschema:"Streams that are opened from one IP address, sustained; a tenth of a second's worth at once. Others wait: their connections are read no further until then. Default: 500; -1 for no limit."`
	HeaderBytes          int      `json:"headerBytes,omitempty" jsonschema:"Size of the headers of a stream, in bytes, each counted as 32 more than it has. Default: 65536; -1 for 16777216."`
	HandshakeTimeout     Duration `json:"handshakeTimeout,omitempty" jsonschema:"How long a new connection has for the handshakes of TLS and HTTP/2. Default: 10s."`
	FirstRequestTimeout  Duration `json:"firstRequestTimeout,omitempty" jsonschema:"How long a stream may be without a request. Default: 1m."`
	IdleConnection       Duration `json:"idleConnection,omitempty" jsonschema:"How long a connection may be without a stream. Default: 5m."`
	StuckFor             Duration `json:"stuckFor,omitempty" jsonschema:"How long a client that is being sent something may take next to nothing of it before it loses the connection. Default: 2m."`
	ConnectionAge        Duration `json:"connectionAge,omitempty" jsonschema:"How long a connection from another machine is used, give or take a tenth. Its client then connects again, so that clients spread over replicas. Default: 30m."`
	RefusalDelay         Duration `json:"refusalDelay,omitempty" jsonschema:"How long a refused stream is kept before it is told, since some clients come back at once. Default: 1s."`
}

// Debounce says how changes are gathered before clients are told.
type Debounce struct {
	Quiet Duration `json:"quiet,omitempty" jsonschema:"How long nothing must change before clients are told. Default: 0s: at once."`
	Max   Duration `json:"max,omitempty" jsonschema:"How long clients wait at most while changes go on. Default: ten times quiet."`
}

// Pacing spaces out the responses to state-of-the-world clients. The first change goes at once.
type Pacing struct {
	Least *Duration `json:"least,omitempty" jsonschema:"How long the next change waits at the least; 0s for no pacing. It is stretched to ten times what the client took to acknowledge. Default: 1s."`
	Most  Duration  `json:"most,omitempty" jsonschema:"How long it waits at the most. Default: 10s."`
}

// Envoy says how Envoys and gRPC clients are served.
type Envoy struct {
	Unenforced string `json:"unenforced,omitempty" jsonschema:"What is done about security objects that Envoys and gRPC clients do not enforce. report: they are logged, counted and fail status --check, and a service to which a DestinationRule has ISTIO_MUTUAL has no endpoints. allow: nothing of that, and plaintext is sent. Default: report."`
}

// The values of Envoy.Unenforced.
const (
	UnenforcedReport = "report"
	UnenforcedAllow  = "allow"
)

// The values of Compression.
const (
	CompressionGzip = "gzip"
	CompressionNone = "none"
)

// checkServing notes limits and delays that make no sense.
func (d *decoder) checkServing(c *Config) {
	l, b := &c.Limits, &c.Debounce
	if p := c.Pacing; p.Least != nil && *p.Least < 0 || p.Most < 0 {
		d.problem("pacing", "want 0 or more")
	}
	if c.Compression == "" {
		c.Compression = CompressionGzip
	}
	if c.Compression != CompressionGzip && c.Compression != CompressionNone {
		d.problem("compression", "want gzip or none, got %q", c.Compression)
	}
	if u := c.Envoy.Unenforced; u != "" && u != UnenforcedReport && u != UnenforcedAllow {
		d.problem("envoy.unenforced", "want report or allow, got %q", u)
	}
	v := reflect.ValueOf(*l)
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch n := v.Field(i); {
		case n.Type() == reflect.TypeFor[Duration]() && n.Int() < 0:
			d.problem("limits."+key, "want 0 or more")
		case n.Int() < -1:
			d.problem("limits."+key, "want -1 for no limit, or more")
		}
	}
	if b.Quiet < 0 {
		d.problem("debounce.quiet", "want 0 or more, got %s", b.Quiet)
	}
	if b.Max == 0 {
		b.Max = 10 * b.Quiet
	}
	if b.Max < b.Quiet {
		d.problem("debounce.max", "want at least debounce.quiet, which is %s, got %s", b.Quiet, b.Max)
	}
}
