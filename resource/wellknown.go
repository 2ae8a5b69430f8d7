package resource

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// wellKnown sets m, one of the types of google.protobuf that have a form of their own in JSON. Istio's API has no others
// than these; a test holds that.
func (d *decoder) wellKnown(m protoreflect.Message, node, n *yaml.Node) {
	switch v := m.Interface().(type) {
	case *durationpb.Duration:
		d.duration(v, node, n)
	case *timestamppb.Timestamp:
		if t, ok := d.time(node, n); ok {
			v.Seconds, v.Nanos = t.Unix(), int32(t.Nanosecond())
		}
	case *structpb.Struct:
		fd := m.Descriptor().Fields().ByName("fields")
		d.mapField(m.Mutable(fd).Map(), fd, node, n)
	case *structpb.ListValue:
		fd := m.Descriptor().Fields().ByName("values")
		d.listField(m.Mutable(fd).List(), fd, node, n)
	case *structpb.Value:
		d.value(v, node, n)
	default:
		fd := m.Descriptor().Fields().ByName("value")
		if m.Descriptor().Fields().Len() != 1 || fd == nil || fd.IsList() || fd.Message() != nil {
			d.fail(node, "fields of type %s are not supported", m.Descriptor().FullName())
			return
		}
		if v, ok := d.scalar(fd, node, n); ok { // a wrapper: BoolValue and the like
			m.Set(fd, v)
		}
	}
}

// value sets v. Scalars have the types that kubectl gives them.
func (d *decoder) value(v *structpb.Value, node, n *yaml.Node) {
	v.Kind = &structpb.Value_NullValue{}
	switch {
	case n.Kind == yaml.MappingNode:
		s := &structpb.Struct{}
		d.wellKnown(s.ProtoReflect(), node, n)
		v.Kind = &structpb.Value_StructValue{StructValue: s}
	case n.Kind == yaml.SequenceNode:
		l := &structpb.ListValue{}
		d.wellKnown(l.ProtoReflect(), node, n)
		v.Kind = &structpb.Value_ListValue{ListValue: l}
	case isNull(n):
	case n.Tag == "!!bool", isOldBool(n):
		b, _ := boolOf(n)
		v.Kind = &structpb.Value_BoolValue{BoolValue: b}
	case isText(n):
		v.Kind = &structpb.Value_StringValue{StringValue: n.Value}
	default:
		f, ok := floatOf(n)
		if !ok || math.IsInf(f, 0) || math.IsNaN(f) {
			d.fail(node, "want a string, a finite number, a boolean, a mapping or a list, got %s", d.describe(n))
			return
		}
		v.Kind = &structpb.Value_NumberValue{NumberValue: f}
	}
}

// maxSeconds is the longest duration, of about 10,000 years.
const maxSeconds = 315_576_000_000

func (d *decoder) duration(v *durationpb.Duration, node, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		if seconds, nanos, ok := parseDuration(n.Value); ok {
			v.Seconds, v.Nanos = seconds, nanos
			return
		}
	}
	d.fail(node, `want a duration such as "1.5s", got %s`, d.describe(n))
}

// parseDuration reads a duration in protobuf's form, a decimal number of seconds with up to nine digits of fraction, or
// in Go's ("1m30s", "100ms"), which Istio's API server and istiod take too.
func parseDuration(s string) (seconds int64, nanos int32, ok bool) {
	number, isSeconds := strings.CutSuffix(s, "s")
	whole, fraction, _ := strings.Cut(number, ".")
	unsigned := strings.TrimLeft(whole, "+-")
	if isSeconds && len(fraction) <= 9 && len(whole)-len(unsigned) <= 1 && len(unsigned)+len(fraction) > 0 &&
		isDigits(unsigned) && isDigits(fraction) && (len(unsigned) < 2 || unsigned[0] != '0') {
		var err error
		if unsigned != "" {
			if seconds, err = strconv.ParseInt(unsigned, 10, 64); err != nil || seconds > maxSeconds {
				return 0, 0, false
			}
		}
		if fraction != "" {
			n, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 32) // nine digits fit
			nanos = int32(n)
		}
		if whole[:len(whole)-len(unsigned)] == "-" {
			seconds, nanos = -seconds, -nanos
		}
		return seconds, nanos, true
	}
	duration, err := time.ParseDuration(s)
	if err != nil || !strings.ContainsAny(s, "smh") { // "0" is one for Go alone
		return 0, 0, false
	}
	return int64(duration / time.Second), int32(duration % time.Second), true
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
