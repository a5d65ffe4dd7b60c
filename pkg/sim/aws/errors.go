package aws

import (
	"errors"
	"fmt"
	"net/http"
)

// apiError is an error as an AWS service answers it.
type apiError struct {
	Code    string
	Message string
}

func newError(code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error is the code and the message.
func (e *apiError) Error() string { return e.Code + ": " + e.Message }

// asAPIError is err as a service error; anything unforeseen is an InternalError.
func asAPIError(err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	return newError("InternalError", "An internal error has occurred, %s", err)
}

// status is the HTTP status that EC2 sends with a code: SDKs retry 5xx.
func (e *apiError) status() int {
	switch e.Code {
	case "RequestLimitExceeded", "Unavailable", "ServiceUnavailable":
		return http.StatusServiceUnavailable
	case "InternalError", "InternalFailure", "InternalServerError":
		return http.StatusInternalServerError
	case "DryRunOperation":
		return http.StatusPreconditionFailed
	case "UnauthorizedOperation", "AuthFailure", "AccessDenied", "OptInRequired":
		return http.StatusForbidden
	case "NoSuchEntity":
		return http.StatusNotFound
	default:
		return http.StatusBadRequest
	}
}
