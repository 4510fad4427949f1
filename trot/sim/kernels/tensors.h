// The tensors of one call, and the way from them into a block's workspace and back.
#pragma once
#include "joint_force.h"
#include "memory.h"
#include "quaternion_gradient.h"

// The structs Tensors and Cotangents are written by the build, from trot/sim/programs.py. Tensors of states and controls
// are (num_worlds, width).

INLINE Quat load_quat(const Scalar* tensor, int num_worlds, int block, int first) {
    Real q[4];
    for (int k = 0; k < 4; ++k) q[k] = load(tensor, num_worlds, num_q, block, first + k);
    return load_quat(q);
}
INLINE void store_quat(Scalar* tensor, int num_worlds, int block, int first, const Quat& quat) {
    Real q[4];
    store_quat(q, quat);
    for (int k = 0; k < 4; ++k) store(tensor, num_worlds, num_q, block, first + k, q[k]);
}

INLINE void load_state(World& world, const Model& model, int lane, const Scalar* joint_q, const Scalar* joint_qd,
                       int num_worlds, int block) {
    FOR_LANES(k, num_q) world.joint_q[k] = load(joint_q, num_worlds, num_q, block, k);
    FOR_LANES(dof, num_dofs) world.joint_qd[dof] = load(joint_qd, num_worlds, num_dofs, block, dof);
    barrier();
    FOR_LANES(quat, num_quats) {
        Real* q = world.joint_q + model.quat_q[quat];
        store_quat(q, normalised(load_quat(q)));
    }
    barrier();
}

INLINE void store_state(const World& world, int lane, const Tensors& t, int block) {
    FOR_LANES(k, num_q) store(t.next_q, t.num_worlds, num_q, block, k, world.joint_q[k]);
    FOR_LANES(dof, num_dofs) store(t.next_qd, t.num_worlds, num_dofs, block, dof, world.joint_qd[dof]);
    FOR_LANES(k, num_acts) store(t.next_activation, t.num_worlds, num_acts, block, k, world.act[k]);
}

INLINE void load_acts(World& world, int lane, const Tensors& t, int block) {
    FOR_LANES(k, num_acts) world.act[k] = load(t.activation, t.num_worlds, num_acts, block, k);
}

// How the controls of muscles with curves act; a control beyond its range is held.
INLINE Real hill_control_adjoint(const Adjoint& adjoint, const Model& model, int actuator, Real control) {
    const int hill = model.actuator_hill[actuator];
    if (hill < 0) return zero();
    const int act = model.hill_act[hill];
    const Real bar = act < 0 ? adjoint.hill_control_bar[hill] : adjoint.act_control_bar[act];
    const Mask held = (control < real(model.control_lower[actuator])) | (control > real(model.control_upper[actuator]));
    return select(held, zero(), bar);
}

INLINE void load_inputs(World& world, const Model& model, int lane, const Tensors& t, int block) {
    FOR_LANES(actuator, num_controls) {
        const Real control = load(t.control, t.num_worlds, num_controls, block, actuator);
        world.control[actuator] = clamped(model, actuator, control);
    }
    if (per_world_parameters) {
        FOR_LANES(k, num_parameters)
            world.parameter[k] = t.parameter_rows == 1 ? real(t.parameter[k])
                                                         : load(t.parameter, t.num_worlds, num_parameters, block, k);
    }
    barrier();
}

INLINE void load_cotangents(Adjoint& adjoint, const Model& model, int lane, const Tensors& t, const Cotangents& c,
                            int block, int world_block) {
    const int q_width = c.tangent ? num_dofs : num_q;
    FOR_LANES(dof, num_dofs) {
        adjoint.joint_qd_bar[dof] = load(c.next_qd_bar, c.bar_rows, num_dofs, block, dof);
        adjoint.joint_force_bar[dof] = zero();
        const int column = c.tangent ? dof : model.dof_q[dof];
        if (column >= 0) adjoint.joint_q_bar[dof] = load(c.next_q_bar, c.bar_rows, q_width, block, column);
    }
    FOR_LANES(segment, num_segments) adjoint.tension_bar[segment] = zero();
    if (num_servos > 0) FOR_LANES(servo, num_servos) adjoint.servo_control_bar[servo] = zero();
    FOR_LANES(k, num_acts) {
        adjoint.act_bar[k] = load(c.next_activation_bar, c.bar_rows, num_acts, block, k);
        adjoint.act_control_bar[k] = zero();
    }
    FOR_LANES(hill, num_hills) adjoint.hill_control_bar[hill] = zero();
    FOR_LANES(k, parameter_slots) adjoint.parameter_bar[k] = zero();
    if (!c.tangent) {
        FOR_LANES(quat, num_quats) {
            const Quat q = load_quat(t.next_q, t.num_worlds, world_block, model.quat_q[quat]);
            const Quat q_bar = load_quat(c.next_q_bar, c.bar_rows, block, model.quat_q[quat]);
            const Vec3 r_bar = to_tangent(q, q_bar);
            for (int k = 0; k < 3; ++k) adjoint.joint_q_bar[model.quat_dof[quat] + k] = numbers(&r_bar)[k];
        }
    }
    barrier();
}

INLINE void store_cotangents(const Adjoint& adjoint, const Model& model, int lane, const Tensors& t,
                             const Cotangents& c, int block, int world_block) {
    const int q_width = c.tangent ? num_dofs : num_q;
    FOR_LANES(dof, num_dofs) {
        store(c.joint_qd_bar, c.bar_rows, num_dofs, block, dof, adjoint.joint_qd_bar[dof]);
        const int column = c.tangent ? dof : model.dof_q[dof];
        if (column >= 0) store(c.joint_q_bar, c.bar_rows, q_width, block, column, adjoint.joint_q_bar[dof]);
    }
    if (!c.tangent) {
        FOR_LANES(quat, num_quats) {
            const Real* bar = adjoint.joint_q_bar + model.quat_dof[quat];
            const Quat q = load_quat(t.joint_q, t.num_worlds, world_block, model.quat_q[quat]);
            const Quat q_bar = from_tangent(normalised(q), vec3(bar[0], bar[1], bar[2]), norm(q));
            store_quat(c.joint_q_bar, c.bar_rows, block, model.quat_q[quat], q_bar);
        }
    }
    FOR_LANES(actuator, num_controls) {
        const Real control = load(t.control, t.num_worlds, num_controls, world_block, actuator);
        Real bar = control_adjoint(adjoint, model, actuator, control);
        if (num_hills > 0) bar += hill_control_adjoint(adjoint, model, actuator, control);
        store(c.control_bar, c.bar_rows, num_controls, block, actuator, bar);
    }
    FOR_LANES(k, num_acts) store(c.activation_bar, c.bar_rows, num_acts, block, k, adjoint.act_bar[k]);
    if (per_world_parameters) {
        FOR_LANES(k, num_parameters)
            store(c.parameter_bar, c.bar_rows, num_parameters, block, k, adjoint.parameter_bar[k]);
    }
}
