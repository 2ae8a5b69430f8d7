package derive

// reportUnread reports the fields of an object that are not known, and those of which nothing is made although they are.
func (d *derivation) reportUnread(o *object) {
	for _, err := range o.strange {
		d.report(o, "", "%v: it is not read", err)
	}
	unread := func(field string, value unread) {
		if len(value) > 0 && string(value) != "null" {
			d.report(o, field, "it is not supported, and nothing is made of it")
		}
	}
	listeners := func(all []listener) {
		for i := range all {
			if all[i].TLS != nil {
				unread(indexed("spec.listeners[%d].tls.frontendValidation", i), all[i].TLS.FrontendValidation)
			}
		}
	}
	switch s := o.spec.(type) {
	case *gatewaySpec:
		unread("spec.backendTLS", s.BackendTLS)
		unread("spec.tls", s.TLS)
		unread("spec.defaultScope", s.DefaultScope)
		listeners(s.Listeners)
	case *listenerSetSpec:
		listeners(s.Listeners)
	case *routeSpec:
		unread("spec.useDefaultGateways", s.UseDefaultGateways)
		for i := range s.Rules {
			unread(indexed("spec.rules[%d].sessionPersistence", i), s.Rules[i].SessionPersistence)
		}
	case *tlsPolicySpec:
		unread("spec.options", s.Options)
	case *trafficPolicySpec:
		unread("spec.sessionPersistence", s.SessionPersistence)
	}
}
