package derive

// grant allows objects of a kind and namespace to refer to an object of another namespace; to all of a kind if name is empty.
type grant struct {
	fromKind, fromNamespace     string
	toKind, toNamespace, toName string
}

// grantsOf reads all ReferenceGrants.
func grantsOf(s *Set) map[grant]bool {
	grants := make(map[grant]bool)
	for _, o := range s.objects["ReferenceGrant"] {
		if o.unread("spec") {
			continue // it may be what limits the grant
		}
		spec := o.spec.(*grantSpec)
		for _, from := range spec.From {
			k, ok := kindByName[from.Kind]
			if !ok || k.Group != from.Group {
				continue // perhaps another controller's
			}
			for _, to := range spec.To {
				if to.Group == "" && (to.Kind == "Secret" || to.Kind == "Service") || to.Group == multiclusterGroup && to.Kind == "ServiceImport" {
					grants[grant{from.Kind, from.Namespace, to.Kind, o.Namespace, to.Name}] = true
				}
			}
		}
	}
	return grants
}

// allowed reports whether an object may refer to an object of a namespace. It always may within its own.
func (d *derivation) allowed(from *object, toKind, toNamespace, toName string) bool {
	if toNamespace == from.Namespace {
		return true
	}
	g := grant{from.kind, from.Namespace, toKind, toNamespace, toName}
	all := g
	all.toName = ""
	return d.grants[g] || d.grants[all]
}
