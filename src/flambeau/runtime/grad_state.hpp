// SPDX-License-Identifier: Apache-2.0
// What a thread does about gradients. Only _autograd includes this: a thread_local variable is one
// per shared library, so the others ask that module for its address.
#pragma once

namespace flambeau {

struct GradState {
  bool grad = true;        // gradients are recorded
  bool inference = false;  // inside inference_mode
  bool autocast = false;   // some device type casts operands
};

inline GradState *grad_state_of_thread() {
  static thread_local GradState state;
  return &state;
}

}  // namespace flambeau
