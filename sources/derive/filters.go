package derive

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// filter adds what a filter does to a route. It returns false after having reported what makes the route worthless.
func (c *ruleConverter) filter(f *filter, i int, out *networking.HTTPRoute) bool {
	field := indexed(".filters[%d]", i)
	grpc := c.route.kind == "GRPCRoute"
	switch {
	case f.Type == "RequestHeaderModifier" || f.Type == "ResponseHeaderModifier":
		out.Headers = headers(f, out.Headers)
	case f.Type == "RequestMirror" && f.RequestMirror != nil:
		c.mirror(f, field, out)
	case f.Type == "RequestRedirect" && f.RequestRedirect != nil && !grpc:
		out.Redirect = redirect(f)
	case f.Type == "URLRewrite" && f.URLRewrite != nil && !grpc:
		out.Rewrite = rewrite(f)
	case f.Type == "CORS" && f.CORS != nil && !grpc:
		out.CorsPolicy = cors(f)
	default:
		c.refuse(field, "type %q is not supported, or has no settings", f.Type)
		return false
	}
	return true
}

// headers returns all with the changes that f makes.
func headers(f *filter, all *networking.Headers) *networking.Headers {
	operations := func(h *headerFilter) *networking.Headers_HeaderOperations {
		return &networking.Headers_HeaderOperations{Set: headerMap(h.Set), Add: headerMap(h.Add), Remove: h.Remove}
	}
	if all == nil && (f.RequestHeaderModifier != nil || f.ResponseHeaderModifier != nil) {
		all = &networking.Headers{}
	}
	if f.RequestHeaderModifier != nil {
		all.Request = operations(f.RequestHeaderModifier)
	}
	if f.ResponseHeaderModifier != nil {
		all.Response = operations(f.ResponseHeaderModifier)
	}
	return all
}

// headerMap is a map of headers: of several with one name, the first.
func headerMap(all []header) map[string]string {
	m := make(map[string]string, len(all))
	for _, h := range all {
		name := strings.ToLower(h.Name)
		if _, ok := m[name]; !ok {
			m[name] = h.Value
		}
	}
	return m
}

func (c *ruleConverter) mirror(f *filter, field string, out *networking.HTTPRoute) {
	m := f.RequestMirror
	destination, wrong, _ := c.destination(&m.BackendRef)
	if wrong != "" {
		c.report(c.route, c.field+field, "%s: nothing is mirrored to it", wrong)
		return
	}
	policy := &networking.HTTPMirrorPolicy{Destination: destination}
	switch {
	case m.Fraction != nil:
		denominator := int32(100)
		if m.Fraction.Denominator != nil && *m.Fraction.Denominator > 0 {
			denominator = *m.Fraction.Denominator
		}
		policy.Percentage = &networking.Percent{Value: 100 * float64(m.Fraction.Numerator) / float64(denominator)}
	case m.Percent != nil:
		policy.Percentage = &networking.Percent{Value: float64(*m.Percent)}
	}
	out.Mirrors = append(out.Mirrors, policy)
}

// The types of changes of a path.
const (
	replaceFullPath    = "ReplaceFullPath"
	replacePrefixMatch = "ReplacePrefixMatch"
)

func redirect(f *filter) *networking.HTTPRedirect {
	r := f.RequestRedirect
	out := &networking.HTTPRedirect{RedirectCode: r.StatusCode, Authority: r.Hostname, Scheme: r.Scheme}
	switch {
	case r.Port != 0:
		out.RedirectPort = &networking.HTTPRedirect_Port{Port: r.Port}
	case r.Scheme != "":
		out.RedirectPort = &networking.HTTPRedirect_DerivePort{DerivePort: networking.HTTPRedirect_FROM_PROTOCOL_DEFAULT}
	default:
		out.RedirectPort = &networking.HTTPRedirect_DerivePort{DerivePort: networking.HTTPRedirect_FROM_REQUEST_PORT}
	}
	if r.Path != nil {
		switch r.Path.Type {
		case replaceFullPath:
			out.Uri = r.Path.ReplaceFullPath
		case replacePrefixMatch:
			out.Uri = "%PREFIX()%" + r.Path.ReplacePrefixMatch // Istio's form
		}
	}
	return out
}

// rewrite returns nil if nothing is rewritten.
func rewrite(f *filter) *networking.HTTPRewrite {
	r := f.URLRewrite
	out := &networking.HTTPRewrite{Authority: r.Hostname}
	if r.Path != nil {
		switch r.Path.Type {
		case replacePrefixMatch:
			out.Uri = strings.TrimSuffix(r.Path.ReplacePrefixMatch, "/")
			if out.GetUri() == "" {
				out.Uri = "/" // the prefix is removed
			}
		case replaceFullPath:
			out.UriRegexRewrite = &networking.RegexRewrite{Match: "/.*", Rewrite: r.Path.ReplaceFullPath}
		}
	}
	if out.GetUri() == "" && out.GetUriRegexRewrite() == nil && out.GetAuthority() == "" {
		return nil
	}
	return out
}

func cors(f *filter) *networking.CorsPolicy {
	out := &networking.CorsPolicy{
		AllowMethods: f.CORS.AllowMethods, AllowHeaders: f.CORS.AllowHeaders, ExposeHeaders: f.CORS.ExposeHeaders,
	}
	for _, origin := range f.CORS.AllowOrigins {
		if origin != "" {
			out.AllowOrigins = append(out.AllowOrigins, exact(origin))
		}
	}
	if f.CORS.AllowCredentials {
		out.AllowCredentials = wrapperspb.Bool(true)
	}
	if f.CORS.MaxAge > 0 {
		out.MaxAge = durationpb.New(time.Duration(f.CORS.MaxAge) * time.Second)
	}
	return out
}
