package model

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Envoy refuses all routes of a port, or a cluster, for a single value that breaks a rule of its API. Translation
// validates messages by these rules, which are generated from the API, and leaves invalid parts out with a finding.

// Refused says why Envoy would refuse a message, or returns "".
func Refused(m interface{ Validate() error }) string {
	if err := m.Validate(); err != nil {
		return "Envoy would refuse it: " + err.Error()
	}
	return ""
}

// Invalid says why Envoy would refuse a message by rules outside of its API, or returns "".
func Invalid(message proto.Message) (why string) {
	Visit(message, func(message proto.Message, _ bool) { why = cmp.Or(why, InvalidPart(message)) })
	return why
}

// InvalidPart is Invalid without nested messages.
func InvalidPart(message proto.Message) string {
	switch typed := message.(type) {
	case *durationpb.Duration:
		if d := typed.AsDuration(); typed.CheckValid() != nil || d < 0 || d > MaxDuration {
			return fmt.Sprintf("Envoy would refuse the duration %ds %dns: it takes 0 s to 292 years", typed.GetSeconds(),
				typed.GetNanos())
		}
	case *corev3.HttpUri:
		if strings.ContainsFunc(typed.GetUri(), func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Sprintf("Envoy would refuse the URI %q: write blanks and letters beyond ASCII as %%20", typed.GetUri())
		}
	case *corev3.HeaderValueOption:
		return invalidFormat(typed.GetHeader().GetValue())
	case *typev3.Percent:
		if math.IsNaN(typed.GetValue()) {
			return "Envoy would refuse a percentage that is no number"
		}
	case *corev3.SubstitutionFormatString:
		syntax := formatSyntax
		if len(typed.GetFormatters()) > 0 { // formatters may add commands
			syntax = anyFormatSyntax
		}
		text := typed.GetTextFormat() //nolint:staticcheck // of EnvoyFilters
		text = cmp.Or(text, typed.GetTextFormatSource().GetInlineString())
		return invalidSyntax(syntax, text, typed.GetJsonFormat())
	case *filev3.FileAccessLog:
		format := typed.GetFormat()                                          //nolint:staticcheck // of EnvoyFilters
		json, typedJSON := typed.GetJsonFormat(), typed.GetTypedJsonFormat() //nolint:staticcheck // of EnvoyFilters
		return cmp.Or(invalidSyntax(formatSyntax, format, json), invalidSyntax(formatSyntax, "", typedJSON))
	case *tcpv3.TcpProxy_TunnelingConfig:
		return invalidSyntax(formatSyntax, typed.GetHostname(), nil)
	case *extauthzv3.AuthorizationRequest:
		return invalidHeaders(typed.GetHeadersToAdd())
	case *corev3.GrpcService:
		return invalidHeaders(typed.GetInitialMetadata())
	case interface {
		GetRequestHeadersToAdd() []*corev3.HeaderValueOption
	}:
		for _, option := range typed.GetRequestHeadersToAdd() {
			if why := invalidHeaders([]*corev3.HeaderValue{option.GetHeader()}); why != "" {
				return why
			}
		}
	}
	return ""
}

func invalidFormat(format string) string {
	if IsLogFormat(format) {
		return ""
	}
	return "Envoy has no such command between the percent signs of " + format
}

// commandFamilies are the first words of the commands of Envoy 1.36 to 1.40. Most commands of a newer Envoy begin with
// one of them, too.
const commandFamilies = `ACCESS|BYTES|CEL|CLUSTER|COALESCE|COMMON|CONNECTION|CUSTOM|DOWNSTREAM|DURATION|DYNAMIC|EMIT|` +
	`ENVIRONMENT|FILE|FILTER|GRPC|HOSTNAME|LISTENER|LOCAL|METADATA|PACKETS|PATH|PROTOCOL|QUERY|REQ|REQUEST|REQUESTED|` +
	`RESP|RESPONSE|ROUNDTRIP|ROUTE|SPAN|START|STREAM|TLS|TRACE|TRAILER|UNIQUE|UPSTREAM|VIRTUAL`

// formatSyntax matches a format with commands of Envoy, and anyFormatSyntax one with commands of any name.
var (
	formatSyntax    = syntaxOf(`(` + commandFamilies + `)(_[A-Z0-9_]+)?`)
	anyFormatSyntax = syntaxOf(`[A-Z0-9_]+`)
)

func syntaxOf(names string) *regexp.Regexp {
	return regexp.MustCompile(`^([^%]|%%|%` + names + `(\(.*?\))?(:[0-9]+)?%)*$`)
}

// invalidSyntax says why Envoy would refuse the format of a text, or one in JSON, which may be nil.
func invalidSyntax(syntax *regexp.Regexp, text string, json *structpb.Struct) (reason string) {
	check := func(format string) {
		if reason == "" && !syntax.MatchString(strings.ReplaceAll(format, "\n", " ")) {
			reason = fmt.Sprintf("Envoy would refuse %q: a percent sign begins no command of Envoy; write it as %%%%", format)
		}
	}
	check(text)
	Visit(json, func(message proto.Message, _ bool) {
		if value, ok := message.(*structpb.Value); ok {
			check(value.GetStringValue())
		}
	})
	return reason
}

// invalidHeaders says why Envoy would refuse to set headers. Their values are formats.
func invalidHeaders(headers []*corev3.HeaderValue) string {
	for _, headerValue := range headers {
		if strings.HasPrefix(headerValue.GetKey(), ":") || strings.EqualFold(headerValue.GetKey(), "host") {
			return fmt.Sprintf("Envoy would refuse to set the header %q", headerValue.GetKey())
		}
		if why := cmp.Or(Refused(headerValue), invalidFormat(headerValue.GetValue())); why != "" {
			return fmt.Sprintf("%s (header %s)", why, headerValue.GetKey())
		}
	}
	return ""
}

// MaxServerName limits the length of the server name of a TLS connection.
const MaxServerName = 255

// ServerName returns the server name of connections to a cluster, or "" if it is too long.
func ServerName(clientTLSSettings *networking.ClientTLSSettings) string {
	if len(clientTLSSettings.GetSni()) > MaxServerName {
		return ""
	}
	return clientTLSSettings.GetSni()
}

// MaxDuration is the longest duration in Envoy: a second less than the largest number of nanoseconds, 292 years.
const MaxDuration = time.Duration(math.MaxInt64/int64(time.Second)-1) * time.Second

// Shortened limits a duration to MaxDuration.
func Shortened(duration *durationpb.Duration) *durationpb.Duration {
	if duration.GetSeconds() > int64(MaxDuration/time.Second) {
		return durationpb.New(MaxDuration)
	}
	return duration
}

// PlaceOf is the place of the DestinationRule for a port's cluster, or else of the port.
func (v *View) PlaceOf(p *Port) Place {
	if v.Policy.Name == "" {
		return p.Place()
	}
	return Place{resource.Key{Kind: resource.DestinationRule, Namespace: v.Policy.Namespace, Name: v.Policy.Name}, "spec"}
}

// ScaleWeights reduces the weights of clusters in proportion until their sum has 32 bits.
func ScaleWeights(clusters []*routev3.WeightedCluster_ClusterWeight) {
	for {
		sum := uint64(0)
		for _, cluster := range clusters {
			sum += uint64(cluster.GetWeight().GetValue())
		}
		if sum <= math.MaxUint32 {
			return
		}
		for _, cluster := range clusters {
			cluster.Weight.Value = max(cluster.GetWeight().GetValue()/2, 1)
		}
	}
}

// NormalizeAddresses returns distinct addresses or ranges in the form that Envoy compares: an IPv6 address has several
// spellings. It drops addresses with a zone, because Envoy rejects them.
func NormalizeAddresses(addresses []string) []string {
	normalized := make([]string, 0, len(addresses))
	for _, address := range addresses {
		if address = AddressOf(address); !slices.Contains(normalized, address) && !strings.Contains(address, "%") {
			normalized = append(normalized, address)
		}
	}
	return normalized
}

// AddressOf normalizes an address, and returns any other text unchanged.
func AddressOf(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String()
	}
	return text
}
