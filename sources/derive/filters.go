package derive

import (
	"cmp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// filter adds what a filter does to a route. It returns false after having reported what makes the route worthless.
func (n node) filter(out *networking.HTTPRoute, inMesh bool) bool {
	ofHTTP := n.kind == "HTTPRoute"
	switch kind := n.text("type"); {
	case n.headers(&out.Headers):
	case kind == "RequestMirror" && n.has("requestMirror"):
		n.mirror(out, inMesh)
	case kind == "RequestRedirect" && n.has("requestRedirect") && ofHTTP:
		out.Redirect = n.get("requestRedirect").redirect()
	case kind == "URLRewrite" && n.has("urlRewrite") && ofHTTP:
		out.Rewrite = n.get("urlRewrite").rewrite()
	case kind == "CORS" && n.has("cors") && ofHTTP:
		out.CorsPolicy = n.get("cors").cors()
	default:
		return n.refuse("type %q is not supported, or has no settings", kind)
	}
	return true
}

// headers adds the changes that a filter makes, and returns false if it is not about headers.
func (n node) headers(all **networking.Headers) bool {
	kind := n.text("type")
	if kind != "RequestHeaderModifier" && kind != "ResponseHeaderModifier" {
		return false
	}
	if *all == nil {
		*all = &networking.Headers{}
	}
	if kind == "RequestHeaderModifier" {
		(*all).Request = n.get("requestHeaderModifier").operations()
	} else {
		(*all).Response = n.get("responseHeaderModifier").operations()
	}
	return true
}

// operations has the first of several headers with one name.
func (n node) operations() *networking.Headers_HeaderOperations {
	named := func(field string) map[string]string {
		m := make(map[string]string)
		for _, h := range n.list(field) {
			name := strings.ToLower(h.text("name"))
			if _, ok := m[name]; !ok {
				m[name] = h.text("value")
			}
		}
		return m
	}
	return &networking.Headers_HeaderOperations{Set: named("set"), Add: named("add"), Remove: n.texts("remove")}
}

func (n node) mirror(out *networking.HTTPRoute, inMesh bool) {
	m := n.get("requestMirror")
	destination, wrong, _ := m.get("backendRef").destination(inMesh)
	if wrong != "" {
		n.report("%s: nothing is mirrored to it", wrong)
		return
	}
	policy := &networking.HTTPMirrorPolicy{Destination: destination}
	if fraction := m.get("fraction"); fraction.value != nil {
		part := float64(fraction.number("numerator", 0)) / float64(max(1, fraction.number("denominator", 100)))
		policy.Percentage = &networking.Percent{Value: 100 * part}
	} else if m.has("percent") {
		policy.Percentage = &networking.Percent{Value: float64(m.number("percent", 0))}
	}
	out.Mirrors = append(out.Mirrors, policy)
}

func (n node) redirect() *networking.HTTPRedirect {
	out := &networking.HTTPRedirect{
		RedirectCode: uint32(n.number("statusCode", 0)), Authority: n.text("hostname"), Scheme: n.text("scheme"),
	}
	switch {
	case n.port() != 0:
		out.RedirectPort = &networking.HTTPRedirect_Port{Port: n.port()}
	case out.GetScheme() != "":
		out.RedirectPort = &networking.HTTPRedirect_DerivePort{DerivePort: networking.HTTPRedirect_FROM_PROTOCOL_DEFAULT}
	default:
		out.RedirectPort = &networking.HTTPRedirect_DerivePort{DerivePort: networking.HTTPRedirect_FROM_REQUEST_PORT}
	}
	switch path := n.get("path"); path.text("type") {
	case "ReplaceFullPath":
		out.Uri = path.text("replaceFullPath")
	case "ReplacePrefixMatch":
		out.Uri = "%PREFIX()%" + path.text("replacePrefixMatch") // Istio's form
	}
	return out
}

// rewrite returns nil if nothing is rewritten.
func (n node) rewrite() *networking.HTTPRewrite {
	out := &networking.HTTPRewrite{Authority: n.text("hostname")}
	switch path := n.get("path"); {
	case path.text("type") == "ReplacePrefixMatch":
		out.Uri = cmp.Or(strings.TrimSuffix(path.text("replacePrefixMatch"), "/"), "/")
	case path.text("type") == "ReplaceFullPath":
		out.UriRegexRewrite = &networking.RegexRewrite{Match: "/.*", Rewrite: path.text("replaceFullPath")}
	case out.GetAuthority() == "":
		return nil
	}
	return out
}

func (n node) cors() *networking.CorsPolicy {
	out := &networking.CorsPolicy{
		AllowMethods: n.texts("allowMethods"), AllowHeaders: n.texts("allowHeaders"), ExposeHeaders: n.texts("exposeHeaders"),
	}
	for _, origin := range n.texts("allowOrigins") {
		if origin != "" {
			out.AllowOrigins = append(out.AllowOrigins, stringMatch("Exact", origin))
		}
	}
	if n.raw("allowCredentials") == true {
		out.AllowCredentials = wrapperspb.Bool(true)
	}
	if age := n.number("maxAge", 0); age > 0 {
		out.MaxAge = durationpb.New(time.Duration(age) * time.Second)
	}
	return out
}
