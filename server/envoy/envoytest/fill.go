package envoytest

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// texts are what fields hold, by message and name, or by name; what Istio takes and Envoy might not is among them.
var texts = map[string][]string{
	"StringMatch.exact":    {"/a", "one"},
	"StringMatch.prefix":   {"/", "/a", "/a/"},
	"StringMatch.regex":    {"/a.*", "[a-z]+", ".*", "(a|b)*"},
	"RegexRewrite.match":   {"/a/(.*)", "/(a)/(b)"},
	"RegexRewrite.rewrite": {"/b/\\1", "/b", "/\\2", "\\0"},
	"HTTPRewrite.uri":      {"/", "/b"},
	"authority":            {"a.internal", "a.internal:80"},
	"scheme":               {"http", "https"},
	"uri":                  {"/b", "/b?c=d"},
	"retryOn": {
		"5xx", "gateway-error,reset", "503, connect-failure", "retriable-4xx",
		"cancelled",
	},
	"grpcStatus":                              {"UNAVAILABLE", "NOT_FOUND"},
	"ConsistentHashLB.httpHeaderName":         {"x-a"},
	"ConsistentHashLB.httpQueryParameterName": {"q"},
	"HTTPCookie.name":                         {"c"},
	"HTTPCookie.path":                         {"/", ""},
	"allowMethods":                            {"GET", "POST"},
	"allowHeaders":                            {"x-a", "x-b"},
	"exposeHeaders":                           {"x-a"},
	"gateways":                                {"mesh", "gateway"},
	"remove":                                  {"x-a", "x-b", "host"},
	"sourceNamespace":                         {"shop", "other"},
	"statPrefix":                              {"stats"},
	"protocol":                                {"CONNECT", "POST"},
	"targetHost":                              {"tunnel.internal"},
	"HTTPBody.string":                         {"short and stout", ""},
	"host":                                    {"one.internal", "two.internal"},
	"subset":                                  {"", "v1"},
	"subjectAltNames":                         {"one.internal", "spiffe://a/b"},
	"sni":                                     {"one.internal"},
	"clientCertificate":                       {"/etc/certs/client.pem"},
	"privateKey":                              {"/etc/certs/key.pem"},
	"caCertificates":                          {"/etc/certs/ca.pem"},
	"from":                                    {"eu", "eu/a", "eu/a/*"},
	"to":                                      {"us", "us/b"},
	"failoverPriority":                        {"topology.istio.io/network", "version"},
	"HTTPFaultInjection.Abort.http2Error":     {"x"},
	"HTTPMatchRequest.name":                   {"m"},
	"HTTPRoute.name":                          {"r"},
	"LocalityLoadBalancerSetting.Distribute.from":     {"eu/*", "eu/a/*"},
	"LoadBalancerSettings.ConsistentHashLB.attribute": {"x"},
}

// keys are those of maps.
var keys = map[string][]string{
	"headers":        {"x-a", "x-b", "User-Agent"},
	"withoutHeaders": {"x-a", "x-c"},
	"queryParams":    {"q", "r"},
	"sourceLabels":   {"app"},
	"set":            {"x-a", "Host", "x-c"},
	"add":            {"x-a", ":authority", "x-d"},
	"to":             {"eu/*", "us/b/*"},
}

// values are those of maps that hold texts.
var values = map[string][]string{
	"sourceLabels": {"one", "two"},
	"set":          {"v", "%REQ(x-a)%", "100%", "50%%", ""},
	"add":          {"v", "%DOWNSTREAM_REMOTE_ADDRESS%", "%NOTHING%", "%REQ%", "%START_TIME(%Y)%", "%RESPONSE_CODE(1)%"},
}

// numbers that are special to Envoy, by message and name, or by name.
var numbers = map[string][]uint64{
	"tableSize":           {7, 101, 100, 65537, 5000011, 6000000},
	"minimumRingSize":     {1, 1024, 9000000},
	"HTTPRoute.status":    {418},
	"httpStatus":          {400, 503},
	"redirectCode":        {301, 302, 303, 307, 308},
	"port":                {80, 443, 8080},
	"number":              {80, 443, 8080},
	"percent":             {0, 50, 100},
	"mirrorPercent":       {0, 50, 100},
	"maxEjectionPercent":  {0, 50, 100},
	"minHealthPercent":    {0, 50, 100},
	"attempts":            {0, 1, 3},
	"value":               {0, 1, 50, 100},
	"maxRetries":          {0, 5, 1000000},
	"maxConnections":      {0, 1, 2147483647},
	"minRetryConcurrency": {0, 3},
}

var durations = []time.Duration{time.Millisecond, 500 * time.Millisecond, time.Second, 90 * time.Second, time.Hour}

// fill sets fields of a message, and what is in them, at random.
func (m *Mesh) fill(msg proto.Message) { m.fillIn(msg.ProtoReflect(), 0) }

func (m *Mesh) fillIn(message protoreflect.Message, depth int) {
	switch typed := message.Interface().(type) {
	case *durationpb.Duration:
		proto.Merge(typed, durationpb.New(durations[m.rand.IntN(len(durations))]))
		return
	case *wrapperspb.BoolValue:
		typed.Value = m.one(2)
		return
	case *wrapperspb.DoubleValue:
		typed.Value = []float64{0, 0.5, 1, 10, 100}[m.rand.IntN(5)]
		return
	case *wrapperspb.UInt32Value:
		typed.Value = []uint32{0, 1, 5}[m.rand.IntN(3)]
		return
	}
	descriptor := message.Descriptor()
	for i := range descriptor.Oneofs().Len() {
		if oneof := descriptor.Oneofs().Get(i); !oneof.IsSynthetic() && !m.one(4) {
			m.set(message, oneof.Fields().Get(m.rand.IntN(oneof.Fields().Len())), depth)
		}
	}
	for i := range descriptor.Fields().Len() {
		field := descriptor.Fields().Get(i)
		if (field.ContainingOneof() == nil || field.ContainingOneof().IsSynthetic()) && m.one(3) {
			m.set(message, field, depth)
		}
	}
}

func (m *Mesh) set(message protoreflect.Message, field protoreflect.FieldDescriptor, depth int) {
	if depth > 5 {
		return
	}
	switch {
	case field.IsMap():
		entries := message.Mutable(field).Map()
		for range 1 + m.rand.IntN(2) {
			key := protoreflect.ValueOfString(m.pick(known(keys, field, []string{"a", "b"})...)).MapKey()
			switch {
			case field.MapValue().Message() != nil:
				value := entries.NewValue()
				m.fillIn(value.Message(), depth+1)
				entries.Set(key, value)
			case field.MapValue().Kind() == protoreflect.StringKind:
				entries.Set(key, protoreflect.ValueOfString(m.pick(known(values, field, []string{"v"})...)))
			default:
				entries.Set(key, m.scalar(field.MapValue()))
			}
		}
	case field.IsList():
		list := message.Mutable(field).List()
		for range 1 + m.rand.IntN(2) {
			if field.Message() == nil {
				list.Append(m.scalar(field))
				continue
			}
			value := list.NewElement()
			m.fillIn(value.Message(), depth+1)
			list.Append(value)
		}
	case field.Message() != nil:
		m.fillIn(message.Mutable(field).Message(), depth+1)
	default:
		message.Set(field, m.scalar(field))
	}
}

// known returns what is known of a field, by its message and name or by its name.
func known[T any](table map[string]T, field protoreflect.FieldDescriptor, otherwise T) T {
	if value, ok := table[string(field.ContainingMessage().Name())+"."+field.JSONName()]; ok {
		return value
	}
	if value, ok := table[field.JSONName()]; ok {
		return value
	}
	return otherwise
}

func (m *Mesh) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	candidates := known(numbers, field, []uint64{0, 1, 2})
	number := candidates[m.rand.IntN(len(candidates))]
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(m.one(2))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(field.Enum().Values().Get(m.rand.IntN(field.Enum().Values().Len())).Number())
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(m.pick(known(texts, field, []string{"x"})...))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(number))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(number)) //nolint:gosec // small
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(number)) //nolint:gosec // small
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(number)
	default:
		return protoreflect.ValueOfUint32(uint32(number)) //nolint:gosec // small
	}
}
