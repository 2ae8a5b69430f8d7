package coverage

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
	"tributary/server/envoy/translate"
)

// fieldsYAML declares the support of the fields of each message of the translated kinds. A test walks them, so that a
// field of a newer version of the definitions has to be declared, and docs/fields.md has them as a table.
//
//go:embed fields.yaml
var fieldsYAML []byte

// declaration declares the support of the fields of a message, by their names in JSON, separated by blanks. Each field
// is in one of the three parts.
type declaration struct {
	Translated  string            `json:"translated"`
	Meaningless map[string]string `json:"meaningless"` // without a meaning for Envoys, by the reason
	Unsupported map[string]string `json:"unsupported"` // without their intended effect, by the behavior instead
}

var declarations = sync.OnceValue(func() (byMessage map[protoreflect.FullName]declaration) {
	_ = yaml.UnmarshalStrict(fieldsYAML, &byMessage) // a test walks the result
	return byMessage
})

// unsupported has the behavior instead of each unsupported field, by its name in JSON.
var unsupported = sync.OnceValue(func() map[protoreflect.FullName]map[string]string {
	byMessage := make(map[protoreflect.FullName]map[string]string)
	for message, declared := range declarations() {
		byMessage[message] = make(map[string]string)
		for behavior, fields := range declared.Unsupported {
			for field := range strings.FieldsSeq(fields) {
				byMessage[message][field] = behavior
			}
		}
	}
	return byMessage
})

// WithoutEffect returns the fields of an object that are set but have no effect on Envoys, each with its path and the
// behavior instead.
func WithoutEffect(spec proto.Message) (fields []string) {
	walk(spec.ProtoReflect(), "spec", func(path, why string) {
		fields = append(fields, path+" has no effect on Envoys: "+why)
	})
	slices.Sort(fields)
	return fields
}

// walk calls report for each unsupported field that is set, and skips the messages below such a field.
func walk(message protoreflect.Message, parent string, report func(path, why string)) {
	checkMessage(message.Interface(), parent, report)
	behaviors := unsupported()[message.Descriptor().FullName()]
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		path := parent + "." + field.JSONName()
		if why := behaviors[field.JSONName()]; why != "" {
			report(path, why)
			return true
		}
		if check := checks[string(message.Descriptor().Name())+"."+field.JSONName()]; check != nil {
			check(value, path, report)
		}
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					walk(v.Message(), path+"["+k.String()+"]", report)
					return true
				})
			}
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				walk(value.List().Get(i).Message(), fmt.Sprintf("%s[%d]", path, i), report)
			}
		default:
			walk(value.Message(), path, report)
		}
		return true
	})
}

// checkMessage reports values of a message that have no effect, or an unintended one.
func checkMessage(message proto.Message, path string, report func(path, why string)) {
	switch typed := message.(type) {
	case *networking.VirtualService:
		for i, route := range typed.GetHttp() {
			if route.GetDelegate() != nil && len(typed.GetHosts()) == 0 {
				report(fmt.Sprintf("%s.http[%d].delegate", path, i),
					"a delegate does not delegate any further: the route is left out")
			}
		}
	case *networking.WorkloadGroup:
		if template := typed.GetTemplate(); template != nil &&
			!proto.Equal(template, &networking.WorkloadEntry{Labels: template.GetLabels()}) {
			report(path+".template", "only its labels count, since workloads are not registered by it: WorkloadEntries have "+
				"the other fields")
		}
	case *telemetryv1alpha1.AccessLogging:
		if _, why := telemetry.CelFilter(typed.GetFilter()); why != "" {
			report(path+".filter.expression", why+": no log is written")
		}
	case *telemetryv1alpha1.Tracing:
		if len(typed.GetProviders()) > 1 {
			report(path+".providers[1]", "the first one has the spans")
		}
	case *meshv1alpha1.MeshConfig_OutboundTrafficPolicy:
		if typed.GetMode() != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY &&
			typed.GetMode() != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY {
			report(path+".mode", "it is ALLOW_ANY")
		}
	case *networking.IstioEgressListener:
		if typed.GetBind() != "" && !resource.IsAddress(typed.GetBind()) {
			report(path+".bind", "listeners have addresses only")
		}
		if strings.EqualFold(typed.GetPort().GetProtocol(), model.HTTPProxy) {
			report(path+".port.protocol", "there is no proxy for all hosts: the port is one of services")
		}
	case *networking.Server:
		if kind, why := model.KindOf(typed); kind == model.ServerUnknown {
			report(path, why)
		}
	case *networking.HTTPMatchRequest:
		for field, why := range translate.MatchProblems(typed, model.LargeProgram) {
			report(path+"."+field, why+": requests that it may mean get 500")
		}
	case *networking.RegexRewrite:
		if why := translate.RewriteProblem(typed, model.LargeProgram); why != "" {
			report(path, why+": its requests get 500")
		}
	case *networking.CorsPolicy:
		for i, origin := range typed.GetAllowOrigins() {
			if why := model.RegexProblem(origin.GetRegex(), model.LargeProgram); why != "" {
				report(fmt.Sprintf("%s.allowOrigins[%d]", path, i), why+": the origin is left out")
			}
		}
	default:
		checkPolicy(message, path, report)
	}
}

// checkPolicy is checkMessage for TLS settings, faults and hashes.
func checkPolicy(message proto.Message, path string, report func(path, why string)) {
	switch typed := message.(type) {
	case *networking.ClientTLSSettings:
		if translate.CannotOriginate(typed) {
			report(path, "there is no certificate for it: there are no endpoints, and requests get 503; with envoy: "+
				"{unenforced: warn}, "+
				"plaintext is sent instead of MUTUAL")
		}
		if typed.GetSni() != model.ServerName(typed) {
			report(path+".sni", fmt.Sprintf("a server name has %d bytes at most: connections are made as if it were not set",
				model.MaxServerName))
		}
	case *networking.HTTPFaultInjection:
		if (typed.GetDelay().GetFixedDelay() != nil || typed.GetAbort().GetHttpStatus() != 0) &&
			translate.Fault(typed) == nil {
			report(path, "Envoy would refuse it: no fault is injected")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie:
		if model.Shortened(typed.GetTtl()) != typed.GetTtl() {
			report(path+".ttl", fmt.Sprintf("Envoy takes durations of %d seconds at most: it is that",
				int64(model.MaxDuration.Seconds())))
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB:
		if typed.GetHashKey() != nil && translate.HashPolicy(typed) == nil {
			report(path, "Envoy would refuse it: requests have no hash")
		}
	}
}

// checks find values that are left out, by message and field: Envoy would refuse them together with the whole resource,
// or misinterpret them.
var checks = map[string]func(v protoreflect.Value, path string, report func(path, why string)){
	"HeaderOperations.set": checkFormats, "HeaderOperations.add": checkFormats,
	"WorkloadEntry.address": func(v protoreflect.Value, path string, report func(path, why string)) {
		if socket, ok := strings.CutPrefix(v.String(), translate.UnixPrefix); ok && !translate.FitsSocket(socket) {
			report(path, fmt.Sprintf("the path of a socket has %d bytes at most", translate.MaxSocketPath))
		}
	},
	"ConsistentHashLB.minimumRingSize": checkRingSize, "RingHash.minimumRingSize": checkRingSize,
}

// checkFormats finds headers with unknown commands in their values.
func checkFormats(v protoreflect.Value, path string, report func(path, why string)) {
	v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if !model.IsFormat(v.String()) {
			report(path+"["+k.String()+"]", "Envoy has no such command between the percent signs; write a literal percent "+
				"sign twice")
		}
		return true
	})
}

func checkRingSize(value protoreflect.Value, path string, report func(path, why string)) {
	if value.Uint() > translate.MaxRing {
		report(path, fmt.Sprintf("it is %d at most", translate.MaxRing))
	}
	if value.Uint() > translate.LargeRing {
		report(path, "a ring of that size keeps an Envoy busy for a second or more at each change of endpoints, and "+
			"requests wait")
	}
}
