package derive

import (
	"fmt"
	"strconv"

	"istio.io/api/label"
	networking "istio.io/api/networking/v1alpha3"
)

// The options of a listener's TLS that Istio has.
const (
	terminateMode   = "gateway.istio.io/tls-terminate-mode"
	listenerMode    = "gateway.istio.io/listener-protocol"
	autoPassthrough = "auto-passthrough"
	builtinSecret   = "builtin://"
)

// serverTLS returns the TLS settings of a listener, and false if they are wrong. Secrets are not read: they are taken as they are named.
func (d *derivation) serverTLS(o *object, field string, l *listener) (*networking.ServerTLSSettings, bool) {
	if l.TLS == nil {
		return nil, true
	}
	if o.unread(field) {
		d.report(o, field, "something in it is not read, and may be a check of clients: this listener is not served")
		return nil, false
	}
	out := &networking.ServerTLSSettings{}
	switch l.TLS.Mode {
	case "Terminate", "":
		out.Mode = networking.ServerTLSSettings_SIMPLE
	case "Passthrough":
		out.Mode = networking.ServerTLSSettings_PASSTHROUGH
		if isAutoPassthrough(o, l) {
			out.Mode = networking.ServerTLSSettings_AUTO_PASSTHROUGH
		}
		return out, true
	default:
		d.report(o, field+".mode", "%q is neither Terminate nor Passthrough: this listener is not served", l.TLS.Mode)
		return out, false
	}
	switch l.TLS.Options[terminateMode] {
	case "MUTUAL":
		out.Mode = networking.ServerTLSSettings_MUTUAL
	case "OPTIONAL_MUTUAL":
		out.Mode = networking.ServerTLSSettings_OPTIONAL_MUTUAL
	case "ISTIO_SIMPLE":
		out.CredentialName = builtinSecret
		return out, true
	case "ISTIO_MUTUAL":
		out.Mode = networking.ServerTLSSettings_ISTIO_MUTUAL
		return out, true
	}
	refs := l.TLS.CertificateRefs
	if len(refs) > 2 {
		d.report(o, field+".certificateRefs", "there are %d, and at most 2 are supported: this listener is not served", len(refs))
		return out, false
	}
	var names []string
	for i := range refs {
		if name := d.secret(o, fmt.Sprintf("%s.certificateRefs[%d]", field, i), &refs[i]); name != "" {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
		return out, len(refs) == 0
	case 1:
		out.CredentialName = names[0]
	default:
		out.CredentialNames = names
	}
	return out, true
}

// secret returns the name of a certificate, or an empty one if it may not be used.
func (d *derivation) secret(o *object, field string, ref *reference) string {
	namespace := ref.in(o.Namespace)
	switch group, kind := ref.kindOf("", "Secret"); {
	case group != "" || kind != "Secret":
		d.report(o, field, "kind %s of %q is no Secret: this certificate is not served", kind, group)
	case !d.allowed(o, "Secret", namespace, ref.Name):
		d.report(o, field, "no ReferenceGrant of namespace %s lets a %s of %s refer to Secret %s: this certificate is not served",
			namespace, o.kind, o.Namespace, ref.Name)
	default:
		return "kubernetes-gateway://" + namespace + "/" + ref.Name
	}
	return ""
}

// isAutoPassthrough reports whether a listener is that of a gateway between networks, which routes by SNI alone.
func isAutoPassthrough(o *object, l *listener) bool {
	if l.TLS.Options[listenerMode] == autoPassthrough {
		return true
	}
	if _, ok := o.Labels[label.TopologyNetwork.Name]; !ok {
		return false
	}
	port, ok := o.Labels[label.NetworkingGatewayPort.Name]
	if !ok {
		port = "15443"
	}
	return strconv.FormatUint(uint64(l.Port), 10) == port
}
