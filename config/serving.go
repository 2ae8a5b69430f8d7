package config

import (
	"cmp"
	"net/netip"
	"reflect"
	"strings"

	"tributary/internal/history"
	"tributary/internal/intake"
	"tributary/sources/vip"
)

// Limits protect the xDS server from its clients, and the program from the servers that its sources read. Zero stands
// for the default, and -1 for no limit. A client that exceeds a limit is refused with the gRPC status
// RESOURCE_EXHAUSTED, and counted in the metric tributary_xds_refusals_total.
type Limits struct {
	// Connections to the xDS server open at once. Default: the process's limit of open files (ulimit -n), less 128 for
	// itself; -1 for no limit. Read at the start.
	Connections int `json:"connections,omitempty"`
	// Connections to the xDS server open at once from one IP address. Default: 5000; -1 for no limit. Read at the start.
	ConnectionsPerPeer int `json:"connectionsPerPeer,omitempty"`
	// Streams open at once. Default: 10000; -1 for no limit.
	Streams int `json:"streams,omitempty"`
	// Streams open at once from one IP address. Default: 5000; -1 for no limit.
	StreamsPerPeer int `json:"streamsPerPeer,omitempty"`
	// Streams that get their first responses at the same time. Further new streams wait. Default: 16 for each processor;
	// -1 for no limit.
	StartingStreams int `json:"startingStreams,omitempty"`
	// Types that one stream asks for. Default: 256; -1 for no limit.
	TypesPerStream int `json:"typesPerStream,omitempty"`
	// Resource names that one stream subscribes to, or versions in one request. Default: 200000; -1 for no
	// limit.
	NamesPerStream int `json:"namesPerStream,omitempty"`
	// Resource names that all streams subscribe to. Default: 5000000; -1 for no limit.
	Names int `json:"names,omitempty"`
	// Size of one request, in bytes; at least 65536 and at most requestMemory. Default: 16777216; -1 for 1073741824.
	RequestBytes int `json:"requestBytes,omitempty"`
	// Memory for large requests, in bytes: a connection reserves requestBytes of it while it receives more than 64 KiB.
	// Others wait. At least requestBytes. Default: 67108864; -1 for no limit.
	RequestMemory int `json:"requestMemory,omitempty"`
	// Streams open at once on one connection. Clients open further streams on another connection. Default: 100; -1 for no
	// limit.
	StreamsPerConnection int `json:"streamsPerConnection,omitempty"`
	// New streams of one IP address in a second, with bursts of twice as many. Further streams wait. A connection on
	// which streamsPerConnection streams wait is not read meanwhile. Default: 500; -1 for no limit.
	StreamsPerSecond int `json:"streamsPerSecond,omitempty"`
	// Size of the headers of a stream, in bytes. Each header counts 32 bytes more than its size. Default: 65536; -1 for
	// 16777216.
	HeaderBytes int `json:"headerBytes,omitempty"`
	// Time limit for the handshakes of TLS and HTTP/2 on a new connection. Default: 10s.
	HandshakeTimeout Duration `json:"handshakeTimeout,omitempty"`
	// Time limit for a connection without a stream. Default: 5m.
	IdleConnection Duration `json:"idleConnection,omitempty"`
	// Age at which a connection ends, plus or minus a tenth. Its client connects again, so that clients spread over
	// replicas. Default: 30m.
	ConnectionAge Duration `json:"connectionAge,omitempty"`
	// Estimated memory of the products of one object, in bytes: hosts × routes, hosts × ports, and the like. An object
	// with more is quarantined. The limit also holds for the sum of the products of a namespace: the largest objects that
	// do not fit are not served to Envoys. Default: 268435456; -1 for no limit.
	ProductBytes int64 `json:"productBytes,omitempty"`
	// Delay of the refusal of a stream, since some clients connect again at once. Default: 1s.
	RefusalDelay Duration `json:"refusalDelay,omitempty"`
	// Memory for one answer of a server to a source, decompressed and decoded, in bytes. It also bounds the answers that
	// one source reads at the same time; further ones wait. Default: 268435456; -1 for no limit. Read at the start.
	AnswerBytes int `json:"answerBytes,omitempty"`
	// Memory for the answers to all sources, in bytes; further ones wait. At least twice answerBytes. Default:
	// 536870912; -1 for no limit. Read at the start.
	AnswerMemory int `json:"answerMemory,omitempty"`
	// Memory of the objects of a Kubernetes cluster in a source, in bytes. A smaller object counts 2048. Default:
	// 1073741824; -1 for no limit. Read at the start.
	ObjectBytes int `json:"objectBytes,omitempty"`
}

// Debounce says how long changes gather before the clients get them.
type Debounce struct {
	// Wait for further changes before changes are sent. Default: 0s, without a wait.
	Quiet Duration `json:"quiet,omitempty"`
	// Longest wait of clients during continuous changes. Default: ten times quiet.
	Max Duration `json:"max,omitempty"`
}

// Pacing spaces out the responses to state-of-the-world clients. The first change goes at once.
type Pacing struct {
	// Shortest wait before the next change; 0s for no pacing. A slow client waits ten times as long as it takes to
	// acknowledge, but not longer than most. Default: 1s.
	Least *Duration `json:"least,omitempty"`
	// Longest wait before the next change. Default: 10s.
	Most Duration `json:"most,omitempty"`
}

// Envoy says how Envoys and gRPC clients are served.
type Envoy struct {
	// The effect of security objects that Envoys cannot enforce. refuse: traffic that the object may concern is refused,
	// and status --check names the object. warn: the traffic passes, also in plaintext where a DestinationRule has
	// ISTIO_MUTUAL, and a warning in the log names the object. Default: refuse.
	Unenforced string `json:"unenforced,omitempty"`
	// Which EnvoyFilters may change, precede or bypass the enforcement of security objects. any: those of the Envoy's own
	// namespace, too, as with istiod. root: only those of istio-system; other patches that would do so are left out.
	// Default: any.
	WeakeningFilters string `json:"weakeningFilters,omitempty"`
}

// The values of Envoy.WeakeningFilters.
const (
	FiltersOfAny  = "any"
	FiltersOfRoot = "root"
)

// The values of Envoy.Unenforced.
const (
	UnenforcedRefuse = "refuse"
	UnenforcedWarn   = "warn"
)

// The values of Compression.
const (
	CompressionGzip = "gzip"
	CompressionNone = "none"
)

// The sizes of a request, in bytes: the least value of its limit, so that each client can connect, and the defaults.
const (
	leastRequest   = 64 << 10
	defaultRequest = 16 << 20
	defaultMemory  = 64 << 20 // for all requests
)

func (d *decoder) checkServing(config *Config) {
	limits, debounce := &config.Limits, &config.Debounce
	if p := config.Pacing; p.Least != nil && *p.Least < 0 || p.Most < 0 {
		d.problem("pacing", "want 0 or more")
	}
	if p := config.Pacing; p.Least != nil && p.Most > 0 && *p.Least > p.Most {
		d.problem("pacing.least", "want at most pacing.most, %s, got %s", p.Most, *p.Least)
	}
	if limits.RequestBytes > 0 && limits.RequestBytes < leastRequest {
		d.problem("limits.requestBytes", "want at least %d, got %d", leastRequest, limits.RequestBytes)
	}
	if limits.RequestMemory == 0 && (limits.RequestBytes < 0 || limits.RequestBytes > defaultMemory) {
		d.problem("limits.requestBytes", "want at most limits.requestMemory, %d if it is not given, got %d: give requestMemory, too",
			defaultMemory, limits.RequestBytes)
	}
	if limits.RequestMemory > 0 && limits.RequestMemory < cmp.Or(limits.RequestBytes, defaultRequest) {
		d.problem("limits.requestMemory", "want at least limits.requestBytes, %d, got %d",
			cmp.Or(limits.RequestBytes, defaultRequest),
			limits.RequestMemory)
	}
	answer, memory := cmp.Or(limits.AnswerBytes, intake.DefaultAnswer), cmp.Or(limits.AnswerMemory, intake.DefaultMemory)
	if memory > 0 && (answer < 0 || memory/2 < answer) {
		d.problem("limits.answerMemory", "want at least twice limits.answerBytes, %d, got %d", answer, memory)
	}
	config.Compression = cmp.Or(config.Compression, CompressionGzip)
	d.checkOneOf("compression", config.Compression, CompressionGzip, CompressionNone)
	d.checkOneOf("envoy.unenforced", config.Envoy.Unenforced, UnenforcedRefuse, UnenforcedWarn)
	d.checkOneOf("envoy.weakeningFilters", config.Envoy.WeakeningFilters, FiltersOfAny, FiltersOfRoot)
	value := reflect.ValueOf(*limits)
	for i := range value.NumField() {
		key, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		switch n := value.Field(i); {
		case n.Type() == reflect.TypeFor[Duration]() && n.Int() < 0:
			d.problem("limits."+key, "want 0 or more")
		case n.Int() < -1:
			d.problem("limits."+key, "want -1 for no limit, or more")
		}
	}
	if debounce.Quiet < 0 {
		d.problem("debounce.quiet", "want 0 or more, got %s", debounce.Quiet)
	}
	if debounce.Max = cmp.Or(debounce.Max, 10*debounce.Quiet); debounce.Max < debounce.Quiet {
		d.problem("debounce.max", "want at least debounce.quiet, which is %s, got %s", debounce.Quiet, debounce.Max)
	}
}

// History bounds the saved changes.
type History struct {
	// Size of the history on disk in bytes; at least 1048576. Default: 67108864, which is about a week of a change each
	// five seconds; -1 for no history.
	Bytes int64 `json:"bytes,omitempty"`
}

func (d *decoder) checkHistory(h *History) {
	h.Bytes = cmp.Or(h.Bytes, history.DefaultSize)
	if h.Bytes != -1 && h.Bytes < history.LeastSize {
		d.problem("history.bytes", "want at least %d, or -1 for no history, got %d", history.LeastSize, h.Bytes)
	}
}

// VIPsOff is the value of VirtualAddresses without any virtual address.
const VIPsOff = "off"

// VIPs returns the range of virtual addresses; ok is false if there are none.
func (c *Config) VIPs() (prefix netip.Prefix, ok bool) {
	switch c.VirtualAddresses {
	case VIPsOff:
		return netip.Prefix{}, false
	case "":
		return vip.Default, true
	}
	prefix, err := netip.ParsePrefix(c.VirtualAddresses)
	return prefix, err == nil
}

func (d *decoder) checkVIPs(text string) {
	if text == "" || text == VIPsOff {
		return
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		d.problem("virtualAddresses", "want a range such as %s, or off, got %q", vip.Default, text)
		return
	}
	if _, err := vip.New(prefix); err != nil {
		d.problem("virtualAddresses", "%v", err)
	}
}
