package derive

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// filter adds what a filter does to a route.
func (n node) filter(b binding, out *networking.HTTPRoute) {
	kind, ofHTTP := n.text("type"), n.kind == "HTTPRoute"
	mirror, redirect, rewrite, cors := n.get("requestMirror"), n.get("requestRedirect"), n.get("urlRewrite"), n.get("cors")
	switch {
	case n.headers(&out.Headers):
	case kind == "RequestMirror" && mirror.value != nil:
		mirror.mirror(b, out)
	case kind == "RequestRedirect" && redirect.value != nil && ofHTTP:
		out.Redirect = redirect.redirect()
	case kind == "URLRewrite" && rewrite.value != nil && ofHTTP:
		out.Rewrite = rewrite.rewrite()
	case kind == "CORS" && cors.value != nil && ofHTTP:
		out.CorsPolicy = cors.cors()
	default:
		n.refuse("type %q is not supported, or has no settings", kind)
	}
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
	out := &networking.Headers_HeaderOperations{Set: make(map[string]string), Add: make(map[string]string), Remove: n.texts("remove")}
	for field, headers := range map[string]map[string]string{"set": out.GetSet(), "add": out.GetAdd()} {
		for _, h := range slices.Backward(n.list(field)) {
			headers[strings.ToLower(h.text("name"))] = h.text("value")
		}
	}
	return out
}

func (n node) mirror(b binding, out *networking.HTTPRoute) {
	ref := n.get("backendRef")
	destination, wrong := ref.destination(b)
	if wrong != "" {
		ref.report("%s: nothing is mirrored to it", wrong)
		return
	}
	policy := &networking.HTTPMirrorPolicy{Destination: destination}
	if fraction := n.get("fraction"); fraction.value != nil {
		part := float64(fraction.number("numerator", 0)) / float64(max(1, fraction.number("denominator", 100)))
		policy.Percentage = &networking.Percent{Value: 100 * part}
	} else if n.has("percent") {
		policy.Percentage = &networking.Percent{Value: float64(n.number("percent", 0))}
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
