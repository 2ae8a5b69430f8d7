// Package translate makes Envoy's resources of a view. It is pure: equal views have equal translations.
package translate
