package coverage

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
	"tributary/server/envoy/translate"
)

// declaration declares the support of the fields of a message. Each field is in one of the three lists.
type declaration struct {
	translated  string            // names in JSON, separated by blanks
	meaningless map[string]string // fields without a meaning for Envoys, with the reason
	unsupported map[string]string // fields without their intended effect, with the behavior instead
}

const probeHostReason = "clients probe the address of an endpoint only: workloads of a group with one are not checked"

// declarations has each message of the translated kinds. A test walks them, so that a field of a newer version of the
// definitions has to be declared, and docs/fields.md has them as a table.
var declarations = mergeMaps(
	networkingDeclarations, meshDeclarations, securityDeclarations, extensionDeclarations,
)

// networkingDeclarations has the objects of services, traffic and gateways.
var networkingDeclarations = map[protoreflect.FullName]declaration{
	"istio.networking.v1alpha3.ServiceEntry": {
		translated: "hosts addresses ports location resolution endpoints workloadSelector exportTo subjectAltNames",
	},
	"istio.networking.v1alpha3.ServicePort":      {translated: "number protocol name targetPort"},
	"istio.networking.v1alpha3.WorkloadSelector": {translated: "labels"},
	"istio.networking.v1alpha3.WorkloadEntry": {
		translated: "address ports labels locality weight serviceAccount",
		unsupported: map[string]string{
			"network": "endpoints of all networks are served as they are, without a gateway in between",
		},
	},
	"istio.networking.v1alpha3.WorkloadGroup": {translated: "metadata template probe"},
	"istio.networking.v1alpha3.WorkloadGroup.ObjectMeta": {
		translated: "labels", meaningless: map[string]string{"annotations": "they are for WorkloadEntries that istiod makes"},
	},
	"istio.networking.v1alpha3.ReadinessProbe": {
		translated:  "timeoutSeconds periodSeconds successThreshold failureThreshold httpGet tcpSocket grpc",
		meaningless: map[string]string{"initialDelaySeconds": "an endpoint gets no requests before it has answered a probe"},
		unsupported: map[string]string{"exec": "clients run no commands on workloads: these are not checked"},
	},
	"istio.networking.v1alpha3.HTTPHealthCheckConfig": {
		translated: "path port scheme httpHeaders", unsupported: map[string]string{"host": probeHostReason},
	},
	"istio.networking.v1alpha3.HTTPHeader": {translated: "name value"},
	"istio.networking.v1alpha3.TCPHealthCheckConfig": {
		translated: "port", unsupported: map[string]string{"host": probeHostReason},
	},
	"istio.networking.v1alpha3.GrpcHealthCheckConfig": {translated: "port service"},
	"istio.networking.v1alpha3.DestinationRule": {
		translated:  "host trafficPolicy subsets exportTo",
		unsupported: map[string]string{"workloadSelector": "a rule with one has no effect"},
	},
	"istio.networking.v1alpha3.TrafficPolicy": {
		translated:  "loadBalancer connectionPool outlierDetection tls portLevelSettings retryBudget proxyProtocol",
		unsupported: map[string]string{"tunnel": "connections are made directly"},
	},
	"istio.networking.v1alpha3.TrafficPolicy.ProxyProtocol": {translated: "version"},
	"istio.networking.v1alpha3.TrafficPolicy.PortTrafficPolicy": {
		translated: "port loadBalancer connectionPool outlierDetection tls",
	},
	"istio.networking.v1alpha3.TrafficPolicy.RetryBudget": {
		translated:  "percent minRetryConcurrency",
		unsupported: map[string]string{"budgetInterval": "the budget is of the requests under way"},
	},
	"istio.networking.v1alpha3.LoadBalancerSettings": {
		translated: "simple consistentHash localityLbSetting warmupDurationSecs warmup",
		unsupported: map[string]string{
			"backendUtilization": "endpoints are not weighted by the load that they report",
			"zoneAwareLbSetting": "localities have the weight of their endpoints",
		},
	},
	"istio.networking.v1alpha3.LocalityLoadBalancerSetting": {
		translated: "distribute failover failoverPriority enabled",
	},
	"istio.networking.v1alpha3.LocalityLoadBalancerSetting.Distribute": {translated: "from to"},
	"istio.networking.v1alpha3.LocalityLoadBalancerSetting.Failover":   {translated: "from to"},
	"istio.networking.v1alpha3.ClientTLSSettings": {
		translated: "mode clientCertificate privateKey caCertificates credentialName subjectAltNames sni " +
			"insecureSkipVerify caCrl caCertCredentialName",
	},
	"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB": {
		translated: "httpHeaderName httpCookie useSourceIp httpQueryParameterName ringHash maglev minimumRingSize",
	},
	"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.HTTPCookie": {
		translated: "name path ttl", unsupported: map[string]string{"attributes": "the cookie has none"},
	},
	"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.RingHash": {translated: "minimumRingSize"},
	"istio.networking.v1alpha3.LoadBalancerSettings.ConsistentHashLB.MagLev":   {translated: "tableSize"},
	"istio.networking.v1alpha3.WarmupConfiguration": {
		translated: "duration minimumPercent aggression",
	},
	"istio.networking.v1alpha3.ConnectionPoolSettings": {translated: "tcp http"},
	"istio.networking.v1alpha3.ConnectionPoolSettings.TCPSettings": {
		translated: "maxConnections connectTimeout tcpKeepalive maxConnectionDuration idleTimeout",
	},
	"istio.networking.v1alpha3.ConnectionPoolSettings.TCPSettings.TcpKeepalive": {translated: "probes time interval"},
	"istio.networking.v1alpha3.ConnectionPoolSettings.HTTPSettings": {
		translated: "http1MaxPendingRequests http2MaxRequests maxRequestsPerConnection maxRetries idleTimeout " +
			"h2UpgradePolicy useClientProtocol maxConcurrentStreams",
		unsupported: map[string]string{"http2KeepAlive": "no pings are sent"},
	},
	"istio.networking.v1alpha3.OutlierDetection": {
		translated: "splitExternalLocalOriginErrors consecutiveLocalOriginFailures consecutiveGatewayErrors " +
			"consecutive5xxErrors interval baseEjectionTime maxEjectionPercent minHealthPercent",
		unsupported: map[string]string{
			"consecutiveErrors":              "say consecutive5xxErrors or consecutiveGatewayErrors",
			"failurePercentageThreshold":     "say consecutive5xxErrors or consecutiveGatewayErrors",
			"outlierDetectionHttpErrorCodes": "errors are those of 500 and more",
		},
	},
	"istio.networking.v1alpha3.PortSelector":     {translated: "number"},
	"istio.networking.v1alpha3.Subset":           {translated: "name labels trafficPolicy"},
	"istio.networking.v1alpha3.VirtualService":   {translated: "hosts gateways http tls tcp exportTo"},
	"istio.networking.v1alpha3.TLSRoute":         {translated: "match route"},
	"istio.networking.v1alpha3.TCPRoute":         {translated: "match route"},
	"istio.networking.v1alpha3.RouteDestination": {translated: "destination weight"},
	"istio.networking.v1alpha3.TLSMatchAttributes": {
		translated: "sniHosts destinationSubnets port sourceLabels gateways sourceNamespace",
	},
	"istio.networking.v1alpha3.L4MatchAttributes": {
		translated:  "destinationSubnets port sourceLabels gateways sourceNamespace",
		unsupported: map[string]string{"sourceSubnet": "connections from everywhere match"},
	},
	"istio.networking.v1alpha3.Sidecar": {
		translated: "workloadSelector ingress egress inboundConnectionPool outboundTrafficPolicy",
	},
	"istio.networking.v1alpha3.IstioIngressListener": {
		translated: "port bind captureMode defaultEndpoint tls connectionPool",
	},
	"istio.networking.v1alpha3.IstioEgressListener": {
		translated:  "port bind hosts",
		unsupported: map[string]string{"captureMode": "all listeners are as the INTERCEPTION_MODE of the node says"},
	},
	"istio.networking.v1alpha3.SidecarPort": {
		translated: "number protocol",
		meaningless: map[string]string{
			"name": "it is for people", "targetPort": "Istio does not heed it either",
		},
	},
	"istio.networking.v1alpha3.OutboundTrafficPolicy": {
		translated: "mode",
		unsupported: map[string]string{
			"egressProxy": "unknown destinations are not reached through a proxy",
		},
	},
	"istio.networking.v1alpha3.Gateway": {translated: "servers selector"},
	"istio.networking.v1alpha3.Server": {
		translated: "port bind hosts tls", meaningless: map[string]string{"name": "it is for people"},
		unsupported: map[string]string{"defaultEndpoint": "requests without a VirtualService get 404"},
	},
	"istio.networking.v1alpha3.Port": {
		translated: "number protocol name",
		unsupported: map[string]string{
			"targetPort": "the gateway listens on the port itself",
		},
	},
	"istio.networking.v1alpha3.ServerTLSSettings": {
		translated: "httpsRedirect mode serverCertificate privateKey caCertificates caCrl credentialName " +
			"credentialNames caCertCredentialName tlsCertificates subjectAltNames verifyCertificateSpki " +
			"verifyCertificateHash minProtocolVersion maxProtocolVersion cipherSuites",
		unsupported: map[string]string{
			"insecureSkipVerify": "clients are verified as the mode says",
			"alpnProtocols":      "the protocols are those of the port",
			"ecdhCurves":         "the curves are Envoy's",
		},
	},
	"istio.networking.v1alpha3.ServerTLSSettings.TLSCertificate": {
		translated:  "serverCertificate privateKey",
		meaningless: map[string]string{"caCertificates": "clients are verified by those of the server"},
	},
	"istio.networking.v1alpha3.HTTPRoute": {
		translated: "name match route redirect directResponse delegate rewrite timeout retries fault mirror mirrors " +
			"mirrorPercent mirrorPercentage corsPolicy headers",
	},
	"istio.networking.v1alpha3.Delegate": {translated: "name namespace"},
	"istio.networking.v1alpha3.HTTPMatchRequest": {
		translated: "name uri scheme method authority headers port sourceLabels gateways queryParams ignoreUriCase " +
			"withoutHeaders sourceNamespace statPrefix",
	},
	"istio.networking.v1alpha3.StringMatch":              {translated: "exact prefix regex"},
	"istio.networking.v1alpha3.HTTPRouteDestination":     {translated: "destination weight headers"},
	"istio.networking.v1alpha3.Destination":              {translated: "host subset port"},
	"istio.networking.v1alpha3.Headers":                  {translated: "request response"},
	"istio.networking.v1alpha3.Headers.HeaderOperations": {translated: "set add remove"},
	"istio.networking.v1alpha3.HTTPRedirect": {
		translated: "uri authority port derivePort scheme redirectCode prefixRewrite",
	},
	"istio.networking.v1alpha3.HTTPDirectResponse": {translated: "status body"},
	"istio.networking.v1alpha3.HTTPBody":           {translated: "string bytes"},
	"istio.networking.v1alpha3.HTTPRewrite":        {translated: "uri authority uriRegexRewrite"},
	"istio.networking.v1alpha3.RegexRewrite":       {translated: "match rewrite"},
	"istio.networking.v1alpha3.HTTPRetry": {
		translated: "attempts perTryTimeout retryOn retryRemoteLocalities retryIgnorePreviousHosts backoff",
	},
	"istio.networking.v1alpha3.HTTPFaultInjection": {translated: "delay abort"},
	"istio.networking.v1alpha3.HTTPFaultInjection.Delay": {
		translated:  "percent fixedDelay percentage",
		unsupported: map[string]string{"exponentialDelay": "requests are not delayed"},
	},
	"istio.networking.v1alpha3.Percent": {translated: "value"},
	"istio.networking.v1alpha3.HTTPFaultInjection.Abort": {
		translated:  "httpStatus grpcStatus percentage",
		unsupported: map[string]string{"http2Error": "requests are not aborted"},
	},
	"istio.networking.v1alpha3.HTTPMirrorPolicy": {translated: "destination percentage"},
	"istio.networking.v1alpha3.CorsPolicy": {
		translated: "allowOrigin allowOrigins allowMethods allowHeaders exposeHeaders maxAge allowCredentials " +
			"unmatchedPreflights",
	},
}

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
	unsupported := declarations[message.Descriptor().FullName()].unsupported
	message.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := parent + "." + f.JSONName()
		if why, ok := unsupported[f.JSONName()]; ok {
			report(path, why)
			return true
		}
		if check := checks[string(message.Descriptor().Name())+"."+f.JSONName()]; check != nil {
			check(v, path, report)
		}
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					walk(v.Message(), path+"["+k.String()+"]", report)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), fmt.Sprintf("%s[%d]", path, i), report)
			}
		default:
			walk(v.Message(), path, report)
		}
		return true
	})
}

// checkMessage reports values of a message that have no effect, or an unintended one.
func checkMessage(message proto.Message, path string, report func(path, why string)) {
	switch m := message.(type) {
	case *networking.VirtualService:
		for i, h := range m.GetHttp() {
			if h.GetDelegate() != nil && len(m.GetHosts()) == 0 {
				report(fmt.Sprintf("%s.http[%d].delegate", path, i),
					"a delegate does not delegate any further: the route is left out")
			}
		}
	case *networking.WorkloadGroup:
		if t := m.GetTemplate(); t != nil && !proto.Equal(t, &networking.WorkloadEntry{Labels: t.GetLabels()}) {
			report(path+".template", "only its labels count, since workloads are not registered by it: WorkloadEntries have "+
				"the other fields")
		}
	case *telemetryv1alpha1.AccessLogging:
		if _, why := telemetry.CelFilter(m.GetFilter()); why != "" {
			report(path+".filter.expression", why+": no log is written")
		}
	case *telemetryv1alpha1.Tracing:
		if len(m.GetProviders()) > 1 {
			report(path+".providers[1]", "the first one has the spans")
		}
	case *meshv1alpha1.MeshConfig_OutboundTrafficPolicy:
		if m.GetMode() != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_REGISTRY_ONLY &&
			m.GetMode() != meshv1alpha1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY {
			report(path+".mode", "it is ALLOW_ANY")
		}
	case *networking.IstioEgressListener:
		if m.GetBind() != "" && !resource.IsAddress(m.GetBind()) {
			report(path+".bind", "listeners have addresses only")
		}
		if strings.EqualFold(m.GetPort().GetProtocol(), model.HTTPProxy) {
			report(path+".port.protocol", "there is no proxy for all hosts: the port is one of services")
		}
	case *networking.Server:
		if kind, why := model.KindOf(m); kind == model.ServerUnknown {
			report(path, why)
		}
	case *networking.HTTPMatchRequest:
		for field, why := range translate.MatchProblems(m, model.LargeProgram) {
			report(path+"."+field, why+": requests that it may mean get 500")
		}
	case *networking.RegexRewrite:
		if why := translate.RewriteProblem(m, model.LargeProgram); why != "" {
			report(path, why+": its requests get 500")
		}
	case *networking.CorsPolicy:
		for i, o := range m.GetAllowOrigins() {
			if why := model.RegexProblem(o.GetRegex(), model.LargeProgram); why != "" {
				report(fmt.Sprintf("%s.allowOrigins[%d]", path, i), why+": the origin is left out")
			}
		}
	default:
		checkPolicy(message, path, report)
	}
}

// checkPolicy is checkMessage for TLS settings, faults and hashes.
func checkPolicy(message proto.Message, path string, report func(path, why string)) {
	switch m := message.(type) {
	case *networking.ClientTLSSettings:
		if translate.CannotOriginate(m) {
			report(path, "there is no certificate for it: there are no endpoints, and requests get 503; with envoy: "+
				"{unenforced: warn}, "+
				"plaintext is sent instead of MUTUAL")
		}
		if m.GetSni() != model.ServerName(m) {
			report(path+".sni", fmt.Sprintf("a server name has %d bytes at most: connections are made as if it were not set",
				model.MaxServerName))
		}
	case *networking.HTTPFaultInjection:
		if (m.GetDelay().GetFixedDelay() != nil || m.GetAbort().GetHttpStatus() != 0) && translate.Fault(m) == nil {
			report(path, "Envoy would refuse it: no fault is injected")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie:
		if model.Shortened(m.GetTtl()) != m.GetTtl() {
			report(path+".ttl", fmt.Sprintf("Envoy takes durations of %d seconds at most: it is that",
				int64(model.MaxDuration.Seconds())))
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB:
		if m.GetHashKey() != nil && translate.HashPolicy(m) == nil {
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

func checkRingSize(v protoreflect.Value, path string, report func(path, why string)) {
	if v.Uint() > translate.MaxRing {
		report(path, fmt.Sprintf("it is %d at most", translate.MaxRing))
	}
	if v.Uint() > translate.LargeRing {
		report(path, "a ring of that size keeps an Envoy busy for a second or more at each change of endpoints, and "+
			"requests wait")
	}
}
